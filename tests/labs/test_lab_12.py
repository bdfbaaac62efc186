"""Lab 12: the starter fails with a reason, the solution passes, and each mistake is named."""

import inspect

import numpy as np
import pytest
from lab_answers import cells_of, found, run_cell

from lib_dlhpc.explore.labs.lab import save
from lib_dlhpc.labs.findings import as_text, passed, seed_of
from lib_dlhpc.labs.lay_out_a_language_model import layouts, ring_attention, sharded_units
from lib_dlhpc.labs.lay_out_a_language_model.layout_laws import (
    FITS,
    HINTS,
    LAWS,
    layout_findings,
    memory_findings,
)
from lib_dlhpc.labs.lay_out_a_language_model.step_laws import LAWS as TIMES
from lib_dlhpc.labs.lay_out_a_language_model.step_laws import NEAR, SMALL, seconds_findings
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.prediction.memory.rank_memory import peak

LAB = "12_lay_out_a_language_model"
NAMES = ["your name", "another", "x"]
FUNCTIONS = (
    *("gather", "step", "zigzag", "ring_attention"),
    *("weights_of", "memory", "seconds", "exchange", "choose"),
)
STEP, RING, PAPER = ("gather", "step"), ("zigzag", "ring_attention"), ("weights_of", "memory")
TIME = ("seconds", "exchange")


def handed_in(solved, function="", changes=()):
    """All functions of the solution, text of one replaced, as from a cell."""
    return cells_of(solved, FUNCTIONS, {"np": np}, function, changes)


def judged(own, given, name, function):
    """The findings that depend on a function of the solution."""
    if function in STEP:
        return own.step_findings(given["step"], name)
    if function in RING:
        return own.ring_findings(given["zigzag"], given["ring_attention"], name)
    if function in PAPER:
        return memory_findings(given["memory"], own.run_of(name))
    if function in TIME:
        return seconds_findings(given["seconds"], own.run_of(name))
    return layout_findings(given["choose"], own.run_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes(own, solved, name):
    findings = own.findings(handed_in(solved), name)
    assert passed(findings) and len(findings) == 16, as_text(findings)


@pytest.mark.parametrize("name", [f"learner {k}" for k in range(4)])
def test_shards_ring_and_estimates_of_the_solution_hold_for_whatever_name(own, solved, name):
    given = handed_in(solved)
    for function in ("step", "zigzag", "memory", "seconds"):
        findings = judged(own, given, name, function)
        assert passed(findings), as_text(findings)


def test_the_starter_fails_with_a_useful_message(own, started):
    scope = started("step", "zigzag", "memory", "seconds", "choose", np=np)
    findings = own.findings(scope, "x")
    assert not any(each.right for each in findings if each.law != FITS)
    assert "weights in a flat array, not shape" in found(findings, own.SHARDED).words
    assert "the last chunk has the most work" in found(findings, own.ZIGZAG).words
    assert "weights of a block's matmuls" in found(findings, LAWS["weights"]).words
    assert "what a block stores per token" in found(findings, LAWS["activations"]).words
    assert "is for one sequence" in found(findings, TIMES["computing"]).words
    assert "waits while the pipeline fills" in found(findings, TIMES["bubble"]).words
    assert found(findings, own.RING).right is None


def test_a_right_layout_does_not_excuse_a_wrong_estimate(own, solved):
    """A constant factor leaves the order of layouts, and the choice, as they are."""
    given = handed_in(solved)
    right = given["seconds"]
    given["seconds"] = lambda *run: {term: 3 * each for term, each in right(*run).items()}
    wrong = {each.law for each in own.findings(given, "x") if each.right is False}
    assert wrong == set(TIMES.values())


def test_the_tolerance_of_a_term_is_stated(own):
    text = (own.HERE / "README.md").read_text()
    for near in NEAR.values():
        assert f"{near:.0%} (" in text
    assert f"{SMALL:.0%} of the step" in text


@pytest.mark.parametrize("name", NAMES[:2])
def test_each_mistake_is_named(own, solved, name):
    for mistake, (function, changes, law, words) in solved.MISTAKES.items():
        given = handed_in(solved, function, changes)
        findings = judged(own, given, name, function)
        finding = found(findings, law)
        assert finding.right is False and words in finding.words, (mistake, as_text(findings))


OTHER_WAYS = [
    (
        "gather",
        [
            (
                "comm.Allgather(unit.shard, full)",
                "full[...] = np.concatenate(comm.allgather(unit.shard))",
            )
        ],
    ),
    ("step", [("unit.shard -= rate * own", "unit.shard = unit.shard - rate * own")]),
    (
        "step",
        [
            (
                "        x = unit.forward(x)\n        unit.free()",
                "        x = unit.forward(x)\n        if unit is not units[-1]:\n            unit.free()",
            ),
            (
                "        gather(unit, comm)\n        dy,",
                "        if unit is not units[-1]:\n            gather(unit, comm)\n        dy,",
            ),
        ],
    ),
    ("zigzag", [("[front, ", "[front[::-1], ")]),
    (
        "ring_attention",
        [
            ("(comm.rank - hop)", "(comm.rank + hop)"),
            ("(comm.rank + 1) % comm.size)\n", "(comm.rank - 1) % comm.size)\n"),
            ("source=(comm.rank - 1)", "source=(comm.rank + 1)"),
        ],
    ),
    (
        "ring_attention",
        [
            ("            request = comm.isend((k, v), (comm.rank + 1) % comm.size)\n", ""),
            (
                "k, v = comm.recv(source=",
                "k, v = comm.sendrecv((k, v), (comm.rank + 1) % comm.size, source=",
            ),
            ("            request.wait()\n", ""),
        ],
    ),
    (
        "weights_of",
        [("2 * model.hidden * (model.hidden + kv)", "2 * model.hidden**2 + 2 * model.hidden * kv")],
    ),
]


@pytest.mark.parametrize(("function", "changes"), OTHER_WAYS)
def test_other_correct_solutions_pass(own, solved, function, changes):
    findings = judged(own, handed_in(solved, function, changes), "x", function)
    assert passed(findings), as_text(findings)


def test_bytes_are_shown_with_their_unit_and_a_layout_without_the_call(own, solved):
    given = handed_in(solved, "memory", [('"weights": 2 * kept', '"weights": kept')])
    words = found(judged(own, given, "x", "memory"), LAWS["weights"]).words
    assert "GB is too little. Return bytes" in words and "The call" not in words


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (
            lambda unit: list(np.zeros(unit.size)),
            "in a flat array, not a list: expected a numpy array.",
        ),
        (lambda unit: np.zeros((unit.size, 1)), ", 1)."),
        (lambda unit: np.zeros(unit.size + 2), "after the last shard are not weights."),
    ],
)
def test_what_is_no_row_of_weights_is_refused_in_a_line(own, weights, words):
    def step(units, loss, x, y, comm, rate):
        units[0].hold(weights(units[0]))

    with pytest.raises(LabError) as raised:
        sharded_units.run_emulated(step, own.sharded_tasks("x")[0])
    assert str(raised.value).endswith(words) and len(str(raised.value)) < 200


def test_units_are_the_decoder_and_do_not_divide_evenly(own):
    for name in NAMES:
        for task in own.sharded_tasks(name):
            sizes = [weights.size for weights in task.weights]
            assert sum(sizes) == task.experiment.model.parameters
            assert any(size % task.ranks for size in sizes), (sizes, task.ranks)


def test_attention_of_one_rank_is_a_softmax_over_the_past(own):
    task = own.ring_tasks("x")[0]
    q, k, v = task.arrays()
    scores = np.einsum("hid,hjd->hij", q, k) / np.sqrt(task.width)
    weights = np.exp(scores) * np.tri(task.tokens)
    right = np.einsum("hij,hjd->hid", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(ring_attention.whole(task), right, rtol=1e-12)


@pytest.mark.parametrize("place", range(len(layouts.SIZES)))
def test_the_terms_and_the_reserve_cover_what_the_fullest_device_holds(solved, place):
    sizes, reserve, memories = layouts.SIZES[place]
    model = layouts.Model(*sizes, 32000, 8192)
    task = layouts.LayoutTask(model, reserve, memories[-1], "ib-ndr", 8, 128)
    for one in task.layouts[:: 9 if place else 3]:
        own = solved.memory(task.model, one)
        right = layouts.first_stage(task, one)
        assert own == pytest.approx(right, rel=0.002), one
        assert peak(task.experiment_of(one)).total <= sum(right.values()) + reserve, one


@pytest.mark.parametrize(("name", "every"), [("learner 1", 9), ("learner 18", 11)])
def test_no_layout_is_faster_than_its_bound_or_the_fastest(name, every):
    task = layouts.task_of(seed_of(name))
    bounds, (best, least) = layouts.bounds(task), layouts.fastest(task)
    for one in task.layouts[::every]:
        if layouts.fits(task, one):
            assert float(layouts.predicted(task, one).step_time) >= max(least, bounds[one])
    assert layouts.fits(task, best) and bounds[best] <= least


def test_the_flop_of_a_sequence_are_those_of_the_library():
    task = layouts.task_of(seed_of("x"))
    model = task.experiment_of(task.layouts[0]).model
    assert task.model.flop == pytest.approx(float(model.train_flop), rel=0.005)


def test_a_slow_layout_is_explained_by_what_it_has_more_of_than_the_fastest(own):
    task, said = own.run_of("x"), set()
    best = layouts.fastest(task)[0]
    near = [best._replace(recompute="full"), best._replace(zero=4 - best.zero)]
    near += [one for one in task.layouts if (one.tensor, one.zero) == (8, 1)][:3]
    for one in near:
        finding = layout_findings(lambda *given, one=one: tuple(one), task)[1]
        said |= {term for term in HINTS if f"difference: {term}" in finding.words}
    assert len(said) > 2, said


@pytest.mark.parametrize(
    ("gives", "words"),
    [
        (lambda model, layout: None, "terms 'weights', 'gradients'"),
        (lambda model, layout: {"weights": 1.0}, "terms 'weights', 'gradients'"),
        (lambda model, layout: {}["x"], "KeyError"),
    ],
)
def test_what_is_no_dict_of_bytes_is_reported(own, gives, words):
    assert words in memory_findings(gives, own.run_of("x"))[1].words


@pytest.mark.parametrize(
    ("gives", "words"),
    [
        (lambda *given: None, "one of `layouts`, not None"),
        (lambda *given: 1 / 0, "ZeroDivisionError"),
        (lambda model, machine, layouts: layouts, "one of `layouts`"),
    ],
)
def test_what_is_no_layout_is_reported(own, gives, words):
    fits, quick = layout_findings(gives, own.run_of("x"))
    assert words in fits.words and fits.right is False and quick.right is None


def test_what_is_no_row_of_positions_is_reported(own, solved):
    for gives, words in ((lambda *a: None, "array of integers"), (lambda *a: 1 / 0, "ZeroDivis")):
        finding = own.ring_findings(gives, solved.ring_attention, "x")[0]
        assert finding.right is False and words in finding.words


def test_all_cells_are_saved_and_hold_on_real_ranks(own, solved, on_ranks, tmp_path):
    source = "import numpy as np\n\n\n" + "\n\n\n".join(
        inspect.getsource(getattr(solved, each)) for each in FUNCTIONS
    )
    scope = run_cell(source, {})
    file = save(scope["step"], tmp_path / "step.py", *(scope[each] for each in own.NAMES[1:]))
    text = on_ranks(own.HERE / "checks.py", str(file), "x", ranks=3)
    assert "3 real ranks" in text and "All 2 hold" in text


def test_nothing_is_started_or_written_before_the_results_are_right(own, solved, monkeypatch):
    monkeypatch.setattr(own, "HERE", None)  # anything done with it would fail
    given = handed_in(solved, "step", [("rate * own", "own")])
    assert "Not yet" in own.on_ranks("x", *(given[each] for each in own.NAMES)).value


def test_learners_have_different_variants(own):
    names = [f"learner {k}" for k in range(12)]
    assert len({own.run_of(name) for name in names}) > 8
    for tasks in (own.sharded_tasks, own.ring_tasks):
        assert len({str(tasks(name)) for name in names}) > 10


def test_what_the_notebook_shows_is_shown(own, solved):
    given = handed_in(solved)
    assert "legal layouts" in own.run("x").value and 1.7 < own.work_of_last() < 1.75
    assert "All 3 hold" in own.check_step(given["step"], "x").value
    assert "All 3 hold" in own.check_ring(given["zigzag"], given["ring_attention"], "x").value
    assert "All 4 hold" in own.check_memory(given["memory"], "x").value
    assert "All 4 hold" in own.check_seconds(given["seconds"], "x").value
    assert "All 2 hold" in own.check_layout(given["choose"], "x").value


def test_a_unit_refuses_a_backward_pass_without_a_forward_pass(own):
    def step(units, loss, x, y, comm, rate):
        units[1].hold(np.zeros(units[1].size))
        units[1].backward(np.zeros((len(x), 8, 10)))

    with pytest.raises(LabError, match="backward comes after its forward"):
        sharded_units.run_emulated(step, own.sharded_tasks("x")[0])
