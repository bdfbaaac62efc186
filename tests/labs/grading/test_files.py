"""Labs 7 and 8: learners' file calls are carried out by the checker, which counts, refuses, and kills."""

import errno
import inspect
import os

import pytest
from file_cheats import LOADERS, SAVES
from patience import PATIENCE

from lib_dlhpc.labs.findings import as_text, passed, seed_of
from lib_dlhpc.labs.grading import files, restarts
from lib_dlhpc.labs.grading.files import Files, Folder
from lib_dlhpc.labs.grading.grade import grades
from lib_dlhpc.labs.grading.labs import lab_of
from lib_dlhpc.labs.repair_the_input.laws import loader_findings
from lib_dlhpc.labs.survive.save_and_resume import restarts_of

NAME = "x"
REPAIR, SURVIVE = "07_repair_the_input", "08_survive"
LOADER = ("prepare", "batches")
CHEATS = {REPAIR: LOADERS, SURVIVE: SAVES}
ALL = [(lab, name) for lab, cheats in CHEATS.items() for name in cheats]


def source_of(solution, lab, name=NAME):
    """The solution of a lab as a hand-in; that of lab 8 with a choice."""
    source = inspect.getsource(solution(lab))
    if lab == REPAIR:
        return source
    own = lab_of(lab)[1]
    way, interval = own.best(own.own_of(name))[1:]
    text = f'[run]\ncheckpoint = "{way}"\ncheckpoint_interval = {interval}\n'
    return f"{source}\ndef choice():\n    return {text!r}\n"


@pytest.fixture(scope="module")
def marks(tmp_path_factory, solution):
    """The marks of all cheats, by lab and name, and of an honest learner after the quick ones."""
    found = {}
    for lab, cheats in CHEATS.items():
        for slow in (False, True):
            folder = tmp_path_factory.mktemp("class")
            chosen = {
                name: source.replace("SEED", str(seed_of(name)))
                for name, (status, _, source) in cheats.items()
                if (status == "timeout") == slow
            }
            for name, source in (chosen | ({} if slow else {"zoe": ""})).items():
                (folder / name).mkdir()
                written = f"{source_of(solution, lab, name)}\n{source}"
                (folder / name / "step.py").write_text(written, encoding="utf-8")
            if chosen:
                for mark in grades(folder, lab, seconds=1 if slow else int(PATIENCE)):
                    found[lab, mark.learner] = mark
    return found


@pytest.mark.parametrize(("lab", "cheat"), ALL)
def test_a_cheat_does_not_pass(marks, lab, cheat):
    status, words, _ = CHEATS[lab][cheat]
    mark = marks[lab, cheat]
    everything = mark.note + as_text(mark.findings)
    assert (mark.status, words in everything) == (status, True), (mark, everything)
    assert mark.passed < mark.total


@pytest.mark.parametrize(("lab", "laws"), [(REPAIR, 11), (SURVIVE, 10)])
def test_who_comes_after_them_gets_full_marks(marks, lab, laws):
    mark = marks[lab, "zoe"]
    assert (mark.status, mark.passed, mark.total) == ("passed", laws, laws), mark


def judged(remote, lab, source, name=NAME):
    """What holds for the loader, or the save and resume, of a hand-in."""
    if lab == SURVIVE:
        given = remote(source, ("save", "resume"))
        return restarts.findings(*given.values(), restarts_of(3)._replace(moments=3))
    given = remote(source, LOADER, ("batches",))
    return loader_findings(*given.values(), lab_of(lab)[1].own_of(name), patience=0.0)


@pytest.mark.parametrize("kind", ["starter", pytest.param("script", marks=pytest.mark.slow)])
def test_slow_loaders_of_lab_7_get_the_findings_that_they_get_here(remote, starter, checks, kind):
    own = checks(REPAIR)
    script = own.original(own.own_of(NAME))
    source, scope = starter(REPAIR, "def batches(") if kind == "starter" else script, {}
    exec(source, scope)
    here = loader_findings(*(scope[each] for each in LOADER), own.own_of(NAME), patience=0.0)
    assert as_text(judged(remote, REPAIR, source)) == as_text(here) and not passed(here)


def test_the_starter_of_lab_8_fails_where_it_fails_in_the_notebook(remote, starter):
    words = [each.words for each in judged(remote, SURVIVE, starter(SURVIVE, "def save("))]
    assert "but its weights are those after step" in words[0]
    assert "in the next attempt resume stopped with EOFError" in words[1]


@pytest.mark.parametrize(
    "mistake", ["not a sample", "opened again", "decoded twice", "all at once"]
)
def test_a_mistake_of_lab_7_is_named(remote, solution, mistake):
    function, old, new, law, words = solution(REPAIR).MISTAKES[mistake]
    body = inspect.getsource(getattr(solution(REPAIR), function))
    source = source_of(solution, REPAIR).replace(body, body.replace(old, new))
    found = judged(remote, REPAIR, source)
    (finding,) = [each for each in found if each.law.startswith(law)]
    assert finding.right is False and words in finding.words, as_text(found)


def test_another_order_of_calls_passes_as_well(remote, solution):
    source = source_of(solution, REPAIR)
    eager = """
        coming = (store.read_many(names) for names in plan(names))
        here = next(coming)
        for after in coming:
            yield [run.decode(data) for data in here]
            here = after
        yield [run.decode(data) for data in here]
"""
    start = source.index("        for files in store.read_ahead")
    end = source.index("ONE, ALL =")
    found = judged(remote, REPAIR, source[:start] + eager.lstrip("\n") + "\n\n" + source[end:])
    assert passed(found), as_text(found)


@pytest.mark.parametrize("mistake", ["no velocity", "begins anew", "behind", "it raises"])
def test_a_mistake_of_lab_8_is_named(remote, solution, mistake):
    old, new, law, words = solution(SURVIVE).RESTARTS[mistake]
    source = source_of(solution, SURVIVE)
    at = source.index("# mistake ->")
    found = judged(remote, SURVIVE, source[:at].replace(old, new) + source[at:])
    (finding,) = [each for each in found if each.law.startswith(law)]
    assert finding.right is False and words in finding.words, as_text(found)


@pytest.mark.parametrize("number", [2, 4, 5])
def test_other_ways_to_save_are_judged_by_what_they_leave(remote, solution, number):
    save, resume, law, words = solution(SURVIVE).OTHERS[number]
    names = f"\nsave, resume = {save.__name__}, {resume.__name__}\n"
    found = judged(remote, SURVIVE, source_of(solution, SURVIVE) + names)
    wrong = [each for each in found if each.right is False]
    assert passed(found) if not law else wrong[0].law.startswith(law) and words in wrong[0].words


STDLIB = """
import io, json, os, pickle, shutil, tempfile
def save(folder, training):
    handle, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "wb") as file:
        pickle.dump([training.weights, training.velocity, training.rng, training.step], file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(name, folder / "state")
    place = os.open(folder, os.O_RDONLY)
    os.fsync(place)
    os.close(place)
    with open(folder / "log", "a", encoding="utf-8") as log:
        print(training.step, file=log)
    shutil.rmtree(folder / "old", ignore_errors=True)
    (folder / "old").mkdir()
    shutil.copy2(folder / "log", folder / "old")
    shutil.copytree(folder / "old", folder / "older", dirs_exist_ok=True)
    assert [p.name for p in folder.glob("old*/*")] == ["log", "log"]
    assert os.path.getsize(folder / "log") == len((folder / "log").read_bytes())
    assert (folder / "older").is_dir() and os.listdir(folder / "old") == ["log"]
    assert (folder / "log").read_text().split()[-1] == str(training.step)
def resume(folder, training):
    if (folder / "state").exists():
        with (folder / "state").open("rb") as file:
            training.weights, training.velocity, training.rng, training.step = pickle.load(file)
"""


def test_pythons_file_functions_work_on_the_checkers_files(remote):
    found = judged(remote, SURVIVE, STDLIB)
    assert passed(found), as_text(found)


@pytest.fixture
def own(tmp_path):
    """The files of a process that has one folder, beside which there is another's."""
    (tmp_path / "own").mkdir()
    (tmp_path / "owner").mkdir()
    found = Files()
    found.grant(Folder(tmp_path / "own"))
    yield found
    found.release()


@pytest.mark.parametrize(
    "place", ["", "..", "owner/x", "own/../owner/x", "own/../../x", "/etc/passwd"]
)
def test_what_is_outside_is_out_of_reach(own, tmp_path, place):
    path = os.path.join(tmp_path, place)
    (tmp_path / "own" / "here").write_text("")
    here = str(tmp_path / "own" / "here")
    calls = [
        *(lambda name=name: getattr(own, name)(path) for name in ("listdir", "scandir", "mkdir")),
        *(lambda name=name: getattr(own, name)(path) for name in ("rmdir", "unlink", "store")),
        *(lambda mode=mode: own.open(path, mode) for mode in files.MODES),
        lambda: own.rename(here, path),
        lambda: own.rename(path, here),
        lambda: own.pack(path, here),
        lambda: own.snapshots(path),
    ]
    for call in calls:
        with pytest.raises(PermissionError, match="outside of the given folder"):
            call()


def test_what_a_process_may_write_has_limits(own, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST", 8)
    monkeypatch.setattr(files, "MOST", 20)
    monkeypatch.setattr(files, "NUMBER", 5)
    first = own.open(str(tmp_path / "own" / "0"), "w+")
    assert own.write(first, b"12345678") == 8
    for call in (lambda: own.write(first, b"9"), lambda: own.truncate(first, 9)):
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == errno.EFBIG
    own.seek(first, 0, 0)
    assert own.read(first, -1) == b"12345678"
    own.seek(first, 0, 0)
    own.write(first, b"12345678")
    with pytest.raises(OSError, match="20 bytes may be written"):
        own.seek(first, 0, 0)
        own.write(first, b"12345678")
    for number in range(4):
        own.mkdir(str(tmp_path / "own" / f"f{number}"))
    with pytest.raises(OSError, match="5 files and folders"):
        own.mkdir(str(tmp_path / "own" / "f4"))


def test_what_is_requested_of_a_store_at_once_has_a_limit(own, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST", 30)
    place = tmp_path / "own"
    (place / "tree").mkdir()
    (place / "tree" / "x").write_bytes(b"0123456789")
    own.pack(str(place / "tree"), str(place / "store"))
    number, names = own.store(str(place / "store"))
    assert own.store_read_many(number, names * 3) == [b"0123456789"] * 3
    for call in (own.store_read_many, own.store_start):
        with pytest.raises(OSError, match="30 bytes may be requested"):
            call(number, names * 4)


def test_what_is_no_open_file_is_an_error(own):
    for call in (lambda: own.read(9, 1), lambda: own.store_finish(9), lambda: own.sync(9)):
        with pytest.raises(OSError, match="9 is no"):
            call()
