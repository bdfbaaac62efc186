"""Lab 7: the starter fails with a reason, the solution passes, and each mistake is named."""

import inspect
import os
import random
import shutil
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from queue import Queue
from statistics import median
from threading import Thread

import numpy as np
import pytest
from lab_answers import found, run_cell

from lib_dlhpc.explore.labs.lab import save
from lib_dlhpc.labs.findings import as_text, passed, seed_of
from lib_dlhpc.labs.repair_the_input import loader
from lib_dlhpc.labs.repair_the_input.laws import (
    MEMORY,
    NONE,
    ONE,
    SAME,
    SHARED,
    STORE,
    TARGET,
    loader_findings,
)
from lib_dlhpc.labs.repair_the_input.loader import prepared, run_loader, run_of, step_time
from lib_dlhpc.labs.repair_the_input.task import (
    FAULTS,
    contents,
    experiment_of,
    loaded,
    original,
    task_of,
)
from lib_dlhpc.prediction.storage.io import reading
from lib_dlhpc.storage import open_store, pack
from lib_dlhpc.storage.mount import mounted

LAB = "07_repair_the_input"
NAMES = ["your name", "another", "x"]
MANY = [f"learner {k}" for k in range(20)]


def variant(solved, function, *changes):
    """The solution's function with text of it replaced, as from a cell."""
    source = inspect.getsource(getattr(solved, function))
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return run_cell(source, dict(vars(solved)))[function]


def judged(own, solved, name, function, *changes):
    """What holds where a function of the solution is changed."""
    given = {each: getattr(solved, each) for each in own.NAMES}
    given[function] = variant(solved, function, *changes)
    if function == "rate":
        return own.rate_findings(given["rate"], own.own_of(name))
    return loader_findings(given["prepare"], given["batches"], own.own_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_holds(own, solved, name):
    findings = own.findings(vars(solved), name)
    assert passed(findings) and len(findings) == 11, as_text(findings)


@pytest.mark.parametrize("name", NAMES)
def test_the_starter_fails_with_a_useful_message(own, started, name):
    scope = started("rate", "batches")
    findings = own.findings(scope, name)
    assert [each.right for each in findings] == [
        False,
        False,
        True,
        True,
        False,
        False,
        None,
        True,
        None,
        None,
        False,
    ], as_text(findings)
    assert "that the bandwidth of the tier allows" in findings[0].words
    assert "Many operations" in findings[1].words
    assert "What could `prepare` write" in found(findings, STORE).words
    assert "What of this was already known" in found(findings, NONE).words


@pytest.mark.slow
def test_each_mistake_is_named(own, solved):
    for mistake, (function, old, new, law, words) in solved.MISTAKES.items():
        finding = found(judged(own, solved, "x", function, (old, new)), law)
        assert finding.right is False and words in finding.words, (mistake, finding)


def test_a_formula_that_is_wrong_in_no_known_way_is_told_which_term_decides(own, solved):
    findings = own.rate_findings(lambda *given: 1.7 * solved.rate(*given), own.own_of("x"))
    assert "Here the readers are busy" in findings[0].words
    assert "Here the metadata servers" in findings[1].words


def test_the_file_that_is_no_sample_is_named_wherever_it_is_met(own, solved):
    wrong = variant(solved, "batches", (' if name.endswith(".img")', ""))
    assert "labels.txt beside them is not a sample" in own.task("x").value
    for shown in (own.check, own.race):
        assert "labels.txt is not one" in shown(solved.prepare, wrong, "x").value
    assert "labels.txt is not one" in own.profile("x", solved.prepare, wrong).value


@pytest.mark.parametrize("name", MANY[:4])
def test_every_script_is_right_and_slow_and_can_be_repaired(own, solved, name):
    task = own.own_of(name)
    scope = loaded(original(task))
    findings = loader_findings(scope["prepare"], scope["batches"], task)
    assert found(findings, SAME).right and found(findings, SHARED).right
    for law in (STORE, NONE, TARGET):
        assert found(findings, law).right is False
    assert passed(loader_findings(solved.prepare, solved.batches, task))


def test_faults_are_seen_in_the_counts(own):
    seen = set()
    for name in MANY:
        task = own.own_of(name)
        scope = loaded(original(task))
        with prepared(scope["prepare"], task) as target:
            record = run_loader(scope["batches"], task, target, run_of(task))
        calls, many = record.epoch.calls, task.samples
        batches = -(-many // task.batch)
        assert calls["open"] == calls["close"] == many * (1 + ("open twice" in task.faults))
        listings = 1 + batches if "list each batch" in task.faults else 1
        assert calls["list"] == listings * (1 + task.classes)
        # Of the folder: the classes, and the file that is none.
        entries = listings * (task.classes + 1)
        assert calls["stat"] == entries + many * (1 + ("look twice" in task.faults))
        assert record.decodes == 3 * many * (1 + ("decode twice" in task.faults))
        assert (calls["read"] > 2 * many) == ("small reads" in task.faults)
        seen |= {*task.faults}
        if seen == {*FAULTS}:
            break
    assert seen == {*FAULTS}


def test_the_price_is_the_librarys(own, solved):
    task = own.own_of("x")
    with prepared(solved.prepare, task) as target:
        record = run_loader(solved.batches, task, target, run_of(task))
    assert step_time(task, record) == pytest.approx(task.batch / task.speed)
    held_up = record._replace(ahead=0)
    run = experiment_of(task, 0, 1 / task.batch, task.sample, task.decode)
    requests = record.counts.requests / record.given
    run = run.set({"storage.reads_per_file": requests})
    fetch = task.batch * task.readers / reading(run).rate
    assert step_time(task, held_up) == pytest.approx(task.batch / task.speed + fetch)


def test_learners_have_different_tasks(own):
    assert len({own.own_of(name) for name in MANY}) == len(MANY)
    assert len({own.own_of(name).faults for name in MANY}) > 5
    assert all(own.own_of(name).samples % 3 for name in MANY)
    assert own.own_of("x") == own.own_of(" X ")


def test_what_the_notebook_shows_is_shown(own, solved):
    assert "Its shared file system" in own.task("x").value
    assert "def batches(target, run)" in own.script("x").value
    assert "requests to a store" in own.profile("x").value
    assert "stores opened        1" in own.profile("x", solved.prepare, solved.batches).value
    assert own.largest("x") in own.ANSWERS
    assert "they compute" in own.check_rate(solved.rate, "x").value
    assert "All 9 hold." in own.check(solved.prepare, solved.batches, "x").value
    assert "times as many" in own.race(solved.prepare, solved.batches, "x").value


def test_one_store_over_real_ranks(own, solved, on_ranks, tmp_path):
    file = save(solved.rate, tmp_path / "step.py", solved.prepare, solved.batches)
    text = on_ranks(own.HERE / "checks.py", str(file), "x", ranks=4)
    assert "4 real ranks" in text and "All 3 hold" in text, text


def test_nothing_is_started_before_the_loader_holds(own, solved, monkeypatch):
    monkeypatch.setattr(own, "HERE", None)
    wrong = variant(solved, "batches", ("ahead=1", "ahead=1000"))
    assert "Not yet" in own.on_ranks("x", solved.rate, solved.prepare, wrong).value


def plan(names, run):
    """The script's batches of names."""
    for epoch in range(run.epochs):
        mixed = sorted(name for name in names if name.endswith(".img"))
        random.Random(run.seed + epoch).shuffle(mixed)
        mixed = mixed[run.rank :: run.ranks]
        yield from (mixed[k : k + run.batch] for k in range(0, len(mixed), run.batch))


def in_a_thread(target, run):
    with open_store(target) as store, ThreadPoolExecutor(1) as pool:
        batches = plan(store.names, run)
        coming = pool.submit(store.read_many, next(batches))
        for names in batches:
            here, coming = coming, pool.submit(store.read_many, names)
            yield [run.decode(data) for data in here.result()]
        yield [run.decode(data) for data in coming.result()]


def through_a_queue(target, run):
    ready = Queue(2)

    def read(store):
        for names in plan(store.names, run):
            ready.put(store.read_many(names))
        ready.put(None)

    with open_store(target) as store:
        Thread(target=read, args=(store,), daemon=True).start()
        while (files := ready.get()) is not None:
            yield tuple(run.decode(data) for data in files)


def in_one_list(target, run):
    kept = []
    with open_store(target) as store:
        for files in store.read_ahead(plan(store.names, run), ahead=3):
            kept[:] = [run.decode(data) for data in files]
            yield kept


@pytest.mark.parametrize("batches", [in_a_thread, through_a_queue, in_one_list])
def test_other_right_loaders_pass(own, solved, batches):
    findings = loader_findings(solved.prepare, batches, own.own_of("x"))
    assert passed(findings), as_text(findings)


def test_samples_may_be_decoded_before_they_are_packed(own):
    def prepare(folder, target):
        for path in folder.rglob("*.img"):
            path.write_bytes(zlib.decompress(path.read_bytes()))
        pack(folder, target)

    def batches(target, run):
        with open_store(target) as store:
            for files in store.read_ahead(plan(store.names, run)):
                yield [np.frombuffer(data, np.uint8) for data in files]

    findings = loader_findings(prepare, batches, own.own_of("x"))
    assert passed(findings), as_text(findings)


def mounted_script(target, run):
    with open_store(target) as store, mounted(store, target.parent / "view") as view:
        yield from loaded(original(task_of(seed_of("x"))))["batches"](view, run)


def all_as_a_list(target, run):
    return list(in_a_thread(target, run))


def with_a_cache(target, run):
    had = {}
    with open_store(target) as store:
        for names in plan(store.names, run):
            new = [name for name in names if name not in had]
            had |= zip(new, store.read_many(new), strict=True)
            yield [run.decode(had[name]) for name in names]


def asks_and_looks(target, run):
    with open_store(target) as store:
        for files in store.read_ahead(plan(store.names, run)):
            os.stat(target)
            yield [run.decode(data) for data in files]


def starts_a_program(target, run):
    for batch in in_a_thread(target, run):
        subprocess.run([sys.executable, "-c", ""], check=True)
        yield batch


def other_sizes(target, run):
    for batch in in_a_thread(target, run):
        yield from (batch[:5], batch[5:])


def as_numbers(target, run):
    for batch in in_a_thread(target, run):
        yield [one.astype(int) for one in batch]


def as_bytes(target, run):
    for batch in in_a_thread(target, run):
        yield [one.tobytes() for one in batch]


def none(target, run):
    return None


def for_ever(target, run):
    while True:
        yield [np.zeros(1, np.uint8)]


def leaves(target, run):
    sys.exit(3)


@pytest.mark.parametrize(
    ("batches", "law", "said"),
    [
        (mounted_script, ONE, "where are all names of a batch known"),
        (all_as_a_list, MEMORY, "How far ahead"),
        (with_a_cache, STORE, "Samples were cached"),
        (asks_and_looks, NONE, "stat"),
        (
            starts_a_program,
            STORE,
            "Your code started another program, whose reads cannot be counted",
        ),
        (other_sizes, SAME, "but in batches of"),
        (as_numbers, SAME, "are not samples"),
        (as_bytes, SAME, "A batch is a list"),
        (none, SAME, "which has no batches"),
        (for_ever, SAME, "which loop never ends"),
        (leaves, SAME, "SystemExit"),
    ],
)
def test_loaders_that_only_look_right_are_diagnosed(own, solved, batches, law, said):
    findings = loader_findings(solved.prepare, batches, own.own_of("x"))
    assert found(findings, law).right is False and said in found(findings, law).words
    assert not passed(findings)


def test_a_store_that_is_asked_for_show_is_seen(own):
    def prepare(folder, target):
        pack(folder, target)
        shutil.copytree(folder, target.parent / "beside")

    def batches(target, run):
        with open_store(target) as store:
            names = plan(store.names, run)
            for _ in store.read_ahead(plan(store.names, run)):
                files = [target.parent / "beside" / name for name in next(names)]
                yield [run.decode(file.read_bytes()) for file in files]

    findings = loader_findings(prepare, batches, own.own_of("x"))
    assert "1 open" in found(findings, NONE).words and found(findings, TARGET).right is False


def test_a_loader_that_hangs_is_stopped(own, solved, monkeypatch):
    monkeypatch.setattr(loader, "LONGEST", 0.5)

    def batches(target, run):
        while True:
            pass
        yield

    findings = loader_findings(solved.prepare, batches, own.own_of("x"))
    assert "never ends" in findings[0].words
    assert all(each.right is None for each in findings[1:])


def test_the_numbers_of_the_notes_are_the_librarys(own, solved, repository):
    notes = (repository / "instructor_notes" / f"lab_{LAB}.md").read_text(encoding="utf-8")
    notes = " ".join(notes.split())
    shares, bandwidth, quicker, limits, one_by_one = [], [], [], [], 0
    for number in range(30):
        task = own.own_of(f"learner {number}")
        many, has = task.samples, task.faults.__contains__
        listings = 1 + -(-many // task.batch) if has("list each batch") else 1
        operations = 2 * listings * (1 + task.classes) / many
        operations += 1 + has("look twice") + 2 * (1 + has("open twice"))
        pieces = [len(data) / 256 for data in contents(task).values()]
        reads = sum(map(ceil, pieces)) / many if has("small reads") else 1
        decode = task.decode * (1 + has("decode twice"))
        script = reading(
            experiment_of(task, operations, reads + has("open twice"), task.sample, decode)
        )
        single, repaired = (
            reading(experiment_of(task, 0, each, task.sample, task.decode)).rate
            for each in (1, 1 / task.batch)
        )
        needed = task.readers * task.speed
        shares.append(script.rate / needed)
        bandwidth.append(script.rate * task.sample / task.bandwidth)
        quicker.append(repaired / script.rate)
        limits.append(script.limit)
        one_by_one += single < needed
    assert f"take {100 * min(bandwidth):.1f} to {max(bandwidth):.0%}" in notes
    assert f"{100 * min(shares):.0f} to {100 * max(shares):.0f}% of the time" in notes
    assert f"less than {100 * median(shares):.0f}%" in notes
    assert f"{min(quicker):.0f} to {max(quicker):.0f} times as fast" in notes
    assert f"of {one_by_one} in 30 large runs" in notes
    assert limits.count("metadata servers") == 8 and "In eight of thirty scripts" in notes
    assert f"{len(solved.MISTAKES)} mistakes by name" in notes
