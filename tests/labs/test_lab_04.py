"""Lab 4: the starter is right for one microbatch only, the solution passes, mistakes are named."""

import inspect
from itertools import cycle

import pytest
from lab_answers import found, run_cell
from patience import PATIENCE

from lib_dlhpc.explore.labs.lab import save
from lib_dlhpc.labs.findings import as_text, passed
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.schedules import PIPELINES, prove_pipeline

LAB = "04_pipeline"
NAMES = ["your name", "another", "x"]
RECEIVE = "comm.Recv(arrived[do.what, i], do.peer)"


def tuned(own, solved, name):
    """The solution's 1F1B with the best number of microbatches, as simulated: what a learner is to find."""
    best = min(own.choices(name), key=lambda m: own.seconds(PIPELINES["1f1b"](own.RANKS, m), name))
    return with_many(solved, best)


def with_many(solved, many):
    """The solution's 1F1B with another number of microbatches in its head."""

    def one_f_one_b(rank, ranks, microbatches=many):
        return solved.one_f_one_b(rank, ranks, microbatches)

    return one_f_one_b


def changed(solved, *changes):
    """The solution's step with text replaced, as from a cell of its own."""
    source = inspect.getsource(solved.step)
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return run_cell(source, dict(vars(solved)))["step"]


@pytest.fixture(scope="module")
def started(starter):
    """What the cells of the notebook define, as they stand."""
    scope = {}
    for words in ("def forward(", "def gpipe(", "def step("):
        exec(starter(LAB, words), scope)
    return scope["step"], scope["gpipe"], scope["one_f_one_b"]


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_once_its_microbatches_are_tuned(own, solved, name):
    findings = own.findings(solved.step, solved.gpipe, tuned(own, solved, name), name)
    assert passed(findings), as_text(findings)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("many", [1, 120])
def test_a_number_far_off_misses_the_target_and_nothing_else(own, solved, name, many):
    many = max(m for m in own.choices(name) if m <= many)
    *others, target = own.findings(solved.step, solved.gpipe, with_many(solved, many), name)
    assert passed(others) and not target.right
    assert "What do more microbatches cost" in target.words


@pytest.mark.parametrize("name", NAMES)
def test_the_starter_is_right_for_one_microbatch_and_slow_for_a_stated_reason(own, started, name):
    findings = own.findings(*started, name)
    right = {each.law for each in findings if each.right}
    assert {own.SINGLE} <= right <= {own.SINGLE, own.KEPT, own.WAITED}, as_text(findings)
    for law in (own.GPIPE, own.ONE):
        assert "No two ranks ever compute at the same time" in found(findings, law).words
    assert "overwritten" in found(findings, own.OWNED).words
    words = found(findings, own.UNEVEN).words
    assert "no rank can continue" in words or "expected shape" in words


def test_each_wrong_stream_is_named(own, solved):
    for stream, (law, words) in solved.WRONG_STREAMS.items():
        finding = found(own.streams(stream, stream), law)
        assert finding.right is False and words in finding.words, (stream.__name__, finding)


def test_each_wrong_step_is_named(own, solved):
    best = {name: tuned(own, solved, name) for name in NAMES}
    mistakes = solved.WRONG_STEPS.items()
    for (mistake, (old, new, law, words)), name in zip(mistakes, cycle(NAMES), strict=False):
        step = changed(solved, (old, new))
        findings = own.findings(step, solved.gpipe, best[name], name)
        finding = found(findings, law)
        assert finding.right is False and words in finding.words, (mistake, as_text(findings))
        assert not passed(findings) and not findings[-1].right


@pytest.mark.parametrize(
    "change",
    [
        ("comm.Isend(made[do.what, i], do.peer)", "comm.isend(made[do.what, i], do.peer)"),
        ("comm.Isend(made[do.what, i], do.peer)", "comm.Isend(made[do.what, i], do.peer, tag=i)"),
        (
            "comm.Recv(arrived[do.what, i], do.peer)",
            "comm.Irecv(arrived[do.what, i], do.peer).Wait()",
        ),
        ("rate * total", "rate * total / 1"),
        ("return value", "return np.array([value])"),
        ("value += part", "value += stage.last and part"),
        ("for do in stream:", "for do in list(stream):"),
    ],
    ids=lambda change: change[1][:50],
)
def test_other_right_steps_pass(own, solved, change):
    changes = [change]
    if "isend" in change[1]:
        changes.append((RECEIVE, "arrived[do.what, i] = comm.recv(source=do.peer)"))
    *others, target = own.findings(changed(solved, *changes), solved.gpipe, solved.one_f_one_b, "x")
    assert passed(others), as_text(others)
    assert target.right is not None


def test_other_right_streams_pass(own, solved):
    # GPipe whose backwards come in the order of the forwards.
    def in_order(rank, ranks, microbatches):
        for i in range(microbatches):
            yield from solved.forward(i, rank, ranks)
        for i in range(microbatches):
            yield from solved.backward(i, rank, ranks)

    def as_list(rank, ranks, microbatches=8):
        return PIPELINES["1f1b"](ranks, microbatches).streams[rank]

    *others, _ = own.findings(solved.step, in_order, as_list, "x")
    assert passed(others), as_text(others)


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (lambda rank, ranks, microbatches: [rank], "rank 0 got 0, which is not an instruction"),
        (lambda rank, ranks, microbatches: [].pop(), "rank 0 stopped with IndexError"),
        (
            lambda rank, ranks, microbatches: iter(
                lambda: PIPELINES["1f1b"](1, 1).streams[0][0], 0
            ),
            "does not end",
        ),
        (lambda rank, ranks, microbatches: None, "rank 0 stopped with TypeError"),
    ],
)
def test_what_is_no_stream_is_reported(own, stream, words):
    findings = own.streams(stream, stream)
    assert words in findings[0].words and findings[2].right is None


def test_a_step_that_replaces_arrays_is_reported(own, solved):
    step = changed(solved, ("stage.weights -= rate", "stage.weights = stage.weights - rate"))
    findings = own.findings(step, solved.gpipe, solved.one_f_one_b, "x")
    assert "a different array" in found(findings, own.SINGLE).words


def test_a_step_that_does_not_end_is_waited_for_once(own, solved, monkeypatch):
    from lib_dlhpc.labs.emulated.ranks import emulate

    step = changed(
        solved, ("for do in stream:", "while True:\n        pass\n    for do in stream:")
    )
    monkeypatch.setattr(emulate, "__defaults__", (*emulate.__defaults__[:-1], 0.2))
    findings = own.findings(step, solved.gpipe, solved.one_f_one_b, "x")
    assert "never ends" in found(findings, own.SINGLE).words
    assert sum(each.right is None for each in findings) == len(own.STEP) - 1


@pytest.mark.parametrize("name", NAMES)
def test_on_every_machine_there_is_a_number_to_choose(own, name):
    times = {m: own.seconds(PIPELINES["1f1b"](own.RANKS, m), name) for m in own.choices(name)}
    close = [m for m, took in times.items() if took <= (1 + own.MARGIN) * own.best(name)]
    assert min(close) > 1 and max(close) < max(own.choices(name))
    assert times[1] > 1.5 * own.best(name) > 1.5 * own.one_device(name) / own.RANKS


def test_a_number_that_does_not_divide_the_batch_is_reported(own, solved):
    assert "is cut evenly into 1, 2" in own.picture(solved.one_f_one_b, "x", 7777).value


def test_what_the_notebook_shows_is_shown(own, solved):
    assert "4 ranks, two layers" in own.machine("x").value
    assert own.speed_up(8) == pytest.approx(4 * 8 / 11)
    many = own.choices("x")[3]
    assert "rank" in own.picture(solved.one_f_one_b, "x", many).summary
    assert "is never done" in own.picture(solved.one_forgotten, "x", many).value
    assert "All 3 hold" in own.check_streams(solved.gpipe, solved.one_f_one_b).value


def test_the_library_and_the_solution_do_the_same(solved):
    for kind, stream in (("gpipe", solved.gpipe), ("1f1b", solved.one_f_one_b)):
        for ranks, many in ((4, 8), (3, 2), (1, 3)):
            pipeline = PIPELINES[kind](ranks, many)
            prove_pipeline(pipeline)
            assert pipeline.streams == tuple(
                tuple(stream(rank, ranks, many)) for rank in range(ranks)
            )


def test_all_cells_are_saved_and_hold_on_real_ranks(own, starter, solved, on_ranks, tmp_path):
    cells = {}
    for number, names in enumerate((("forward", "backward"), ("gpipe", "one_f_one_b"), ("step",))):
        source = "from lib_dlhpc.schedules.pipeline import Backward, Forward, Receive, Send\n" * (
            not number
        )
        source += "import numpy as np\n" + "\n".join(
            inspect.getsource(getattr(solved, n)) for n in names
        )
        run_cell(source, cells)
    file = save(cells["step"], tmp_path / "step.py", cells["gpipe"], cells["one_f_one_b"])
    text = on_ranks(own.HERE / "checks.py", str(file), "x", ranks=3)
    assert "3 real ranks" in text and "All 4 hold" in text


def test_deadlocked_real_ranks_report_where(own, on_ranks, tmp_path, solved):
    source = inspect.getsource(solved).replace(RECEIVE, RECEIVE.replace("do.peer", "comm.rank"))
    (tmp_path / "step.py").write_text(source)
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import functools, runpy, sys\n"
        f"sys.path.insert(0, {str(own.HERE)!r})\n"
        "import checks\n"
        "checks.report_stuck = functools.partial(checks.report_stuck, patience=1.0)\n"
        "checks.main()\n"
    )
    with pytest.raises(LabError, match=r"Rank 1 has been in Receive\(what='activation'"):
        on_ranks(worker, str(tmp_path / "step.py"), "x", ranks=2, patience=PATIENCE)


def test_nothing_is_started_or_written_before_the_checks_hold(own, solved, monkeypatch):
    monkeypatch.setattr(own, "HERE", None)  # anything done with it would fail
    assert "Not yet" in own.on_ranks(solved.step, solved.naive, solved.naive, "x").value


def test_learners_have_different_variants(own):
    assert len({str(own.machine(name).value) for name in NAMES}) == len(NAMES)
    assert len({str(own.tasks(name)) for name in NAMES}) == len(NAMES)
    for name in NAMES:
        sizes = {law: task.batch % task.microbatches for law, (task, _) in own.tasks(name).items()}
        assert sizes[own.EVEN] == 0 < sizes[own.UNEVEN]
