"""Lab 5: the starter fails with a reason, the solution passes, and each mistake is named."""

import inspect
from itertools import cycle

import numpy as np
import pytest
from lab_answers import cells_of, found, run_cell

from lib_dlhpc.explore.labs.lab import save
from lib_dlhpc.labs.findings import as_text, passed
from lib_dlhpc.labs.mistakes import LabError

LAB = "05_split_convolution"
NAMES = ["your name", "another", "x"]
FUNCTIONS = (
    "filters_forward",
    "filters_backward",
    "wanted",
    "both",
    "rows_forward",
    "rows_backward",
)


def right_answers(own, name, times=1.0):
    """What a learner is to find, or `times` of it."""
    prices = {key: own.seconds(layer) for key, layer in own.layers_of(name).items()}
    return lambda: {
        key: (min(price, key=price.get), times * min(price.values()))
        for key, price in prices.items()
    }


def handed_in(own, solved, name, function="", changes=()):
    """All five functions of the solution, text of one replaced, as from cells of their own."""
    scope = cells_of(solved, FUNCTIONS, {"np": np}, function, changes)
    return scope | {"answers": right_answers(own, name)}


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes(own, solved, name):
    findings = own.findings(handed_in(own, solved, name), name)
    assert passed(findings), as_text(findings)


@pytest.mark.parametrize("name", [f"learner {k}" for k in range(6)])
def test_the_solution_passes_for_whatever_name(own, solved, name):
    findings = own.findings(handed_in(own, solved, name), name)
    assert passed(findings), as_text(findings)


@pytest.mark.parametrize("name", NAMES)
def test_the_starter_fails_with_a_useful_message(own, started, name):
    scope = started("filters_forward", "wanted", "rows_backward", "answers")
    findings = own.findings(scope, name)
    assert not any(each.right for each in findings)
    assert "channels of its own filters" in found(findings, own.FILTERS_Y).words
    assert "neighbors" in found(findings, own.ROWS_Y).words
    assert found(findings, own.ROWS_DX).right is None
    assert "too small" in found(findings, own.CHEAPER).words


def test_each_mistake_is_named(own, solved):
    mistakes = solved.MISTAKES.items()
    for (mistake, (function, changes, law, words)), name in zip(
        mistakes, cycle(NAMES), strict=False
    ):
        findings = own.findings(handed_in(own, solved, name, function, changes), name)
        finding = found(findings, law)
        assert finding.right is False and words in finding.words, (mistake, as_text(findings))


SEND = "sent.append(comm.isend(x[:, :, a - own[0] : b - own[0]], peer))"


@pytest.mark.parametrize(
    ("function", "changes"),
    [
        (
            "filters_forward",
            [
                (
                    "comm.allgather(layer.forward(x, w))",
                    "[comm.bcast(layer.forward(x, w), root=r) for r in range(comm.size)]",
                )
            ],
        ),
        ("filters_backward", [("comm.Allreduce(part, dx)", "dx = comm.allreduce(part)")]),
        (
            "rows_forward",
            [
                (SEND, "sent.append(comm.Isend(x[:, :, a - own[0] : b - own[0]].copy(), peer))"),
                ("comm.recv(source=peer)", "np.empty((*x.shape[:2], b - a, x.shape[3]))"),
                (
                    "   tall[:",
                    "   if not mine:\n                comm.Recv(rows, peer)\n            tall[:",
                ),
            ],
        ),
        (
            "rows_forward",
            [
                (
                    "    for peer in range(comm.size):\n        a, b = both(cut.rows[peer]",
                    "    for peer in reversed(range(comm.size)):\n        a, b = both(cut.rows[peer]",
                )
            ],
        ),
        (
            "rows_forward",
            [
                (
                    "return layer.forward(tall, w, padding=(0, layer.padding)), tall",
                    "return layer.forward(tall, w, padding=(0, layer.padding)), np.copy(tall)",
                )
            ],
        ),
        ("rows_backward", [("comm.Allreduce(part, dw)", "dw = comm.allreduce(part)")]),
    ],
)
def test_other_correct_solutions_pass(own, solved, function, changes):
    findings = own.findings(handed_in(own, solved, "x", function, changes), "x")
    assert passed(findings), as_text(findings)


@pytest.mark.parametrize(
    ("function", "changes", "law", "said"),
    [
        ("filters_forward", [("axis=1), x", "axis=1)")], "FILTERS_Y", "expected (y, kept)"),
        (
            "filters_backward",
            [("return dx, dw", "return dw, dx")],
            "FILTERS_D",
            "not the gradient of its own",
        ),
        (
            "rows_forward",
            [("return layer", "[].pop()\n    return layer")],
            "ROWS_Y",
            "stopped with IndexError",
        ),
        ("rows_backward", [(", padding=(0, layer.padding)", "")], "ROWS_DX", "dy is of shape"),
        (
            "rows_backward",
            [("comm.Allreduce(part, dw)", "pass")],
            "ROWS_DW",
            "the numbers differ from those of one rank",
        ),
        (
            "rows_forward",
            [("tall[:, :, a - first", "tall[:, :, 0")],
            "ROWS_Y",
            "stopped with ValueError",
        ),
    ],
)
def test_what_only_looks_right_is_reported(own, solved, function, changes, law, said):
    findings = own.findings(handed_in(own, solved, "x", function, changes), "x")
    finding = found(findings, getattr(own, law))
    assert finding.right is False and said in finding.words, as_text(findings)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_answers_are_named_by_what_they_omit(own, name):
    def told(key, cut, took):
        given = right_answers(own, name)() | {key: (cut, took)}
        return own.answers_findings(lambda: given, name)[0]

    for key, layer in own.layers_of(name).items():
        right, prices = right_answers(own, name)()[key], own.seconds(layer)
        (wrong,) = set(prices) - {right[0]}
        assert f"not by {wrong}" in told(key, wrong, prices[wrong]).words
        for words, took in own._slips(layer, right[0]):
            finding = told(key, right[0], took)
            assert finding.right or f"by {right[0]} is right" in finding.words, words
        assert "million" in told(key, right[0], 1e6 * right[1]).words
        assert told(key, right[0], 1.04 * right[1]).right
        assert not told(key, right[0], 1.06 * right[1]).right
        for value in (float("nan"), float("inf")):
            assert "is not a time" in told(key, right[0], value).words
    assert "KeyError" in own.answers_findings(dict, name)[0].words


def test_seconds_are_the_textbook_formulas_of_the_notebook(own):
    for layer in own.layers_of("x").values():
        p, a, b = layer.ranks, layer.alpha, layer.beta
        gather = (p - 1) * a + (p - 1) / p * layer.y() * b
        dx, dw = (2 * (p - 1) * a + 2 * (p - 1) / p * n * b for n in (layer.x(), layer.w()))
        halos = 2 * (2 * a + 2 * layer.face() * b)
        assert own.seconds(layer) == pytest.approx(
            {"filters": gather + dx, "rows": halos + dw}, rel=1e-4
        )


@pytest.mark.parametrize("name", [f"learner {k}" for k in range(6)])
def test_the_early_layer_is_cut_by_rows_and_the_late_one_by_filters(own, name):
    best = {key: value[0] for key, value in right_answers(own, name)().items()}
    assert best["early"] == "rows" and best["late"] == "filters" and own.ratio(name) > 2


def test_all_cells_are_saved_and_hold_on_real_ranks(own, solved, on_ranks, tmp_path):
    source = "import numpy as np\n\n\n" + "\n\n\n".join(
        inspect.getsource(getattr(solved, each)) for each in FUNCTIONS
    )
    scope = run_cell(source, {})
    file = save(scope["rows_forward"], tmp_path / "step.py", scope["filters_backward"])
    text = on_ranks(own.HERE / "checks.py", str(file), "x", ranks=3)
    assert "3 real ranks" in text and "All 5 hold" in text


def test_nothing_is_started_or_written_before_the_results_are_right(own, solved, monkeypatch):
    monkeypatch.setattr(own, "HERE", None)  # anything done with it would fail
    given = handed_in(own, solved, "x", "rows_backward", [("+= rows", "= rows")])
    assert "Not yet" in own.on_ranks("x", *(given[each] for each in own.NAMES)).value


def test_learners_have_different_variants(own):
    assert len({str(own.tasks(name)) for name in NAMES}) == len(NAMES)
    assert len({str(own.layers_of(name)) for name in NAMES}) == len(NAMES)
    for name in NAMES:
        for task in own.tasks(name):
            assert task.layer.rows % 2 == task.layer.columns % 2 == 1
            assert all(a < b for part in task.cut for a, b in part)


def test_what_the_notebook_shows_is_shown(own, solved):
    assert "ranks on a ring" in own.layers("x").value
    given = handed_in(own, solved, "x")
    ff, fb, rf, rb, answers = (given[each] for each in own.NAMES)
    assert "All 3 hold" in own.check_filters(ff, fb, "x").value
    assert "All 4 hold" in own.check_rows(rf, rb, "x").value
    assert "All 1 hold" in own.check_answers(answers, "x").value


def test_a_file_that_lacks_something_is_reported(own, on_ranks, tmp_path):
    (tmp_path / "step.py").write_text("def rows_forward():\n    pass\n")
    with pytest.raises(LabError, match="does not define filters_forward, filters_backward, rows_b"):
        on_ranks(own.HERE / "checks.py", str(tmp_path / "step.py"), "x", ranks=2)
