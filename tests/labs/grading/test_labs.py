"""Each lab: the solution holds in processes of its own, starters and mistakes get what they get in this one."""

import inspect

import numpy as np
import pytest
from fused_attention import judged

from lib_dlhpc.labs.findings import as_text, passed
from lib_dlhpc.labs.fuse_attention.runs import run
from lib_dlhpc.labs.grading.hand_in import NotAllowed, check_imports
from lib_dlhpc.labs.grading.labs import COMPUTES, LABS, lab_of
from lib_dlhpc.labs.lay_out_a_language_model.layout_laws import layout_findings
from lib_dlhpc.labs.lay_out_a_language_model.layouts import task_of
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.race_the_planner.race import OverBudget, attempt
from lib_dlhpc.labs.race_the_planner.real_plans import here

NAME = "x"
SOLVED = ("01_data_parallel_step", "02_overlap", "04_pipeline", "15_size_and_fit")


def source_of(module):
    return inspect.getsource(module)


@pytest.mark.parametrize("lab", SOLVED)
def test_the_solution_gets_the_findings_that_it_gets_here(remote, solution, lab):
    known, checks = lab_of(lab)
    own, there = vars(solution(lab)), remote(source_of(solution(lab)), known.names)
    findings = known.judge(checks, there, NAME)
    assert passed(findings) and len(findings) == known.laws, as_text(findings)
    assert as_text(findings) == as_text(known.judge(checks, own, NAME))


@pytest.mark.parametrize(
    ("lab", "cells"),
    [
        ("01_data_parallel_step", ["def step("]),
        ("02_overlap", ["def step("]),
        ("04_pipeline", ["def forward(", "def gpipe(", "def step("]),
    ],
)
def test_the_starter_gets_the_marks_that_it_gets_here(remote, starter, lab, cells):
    known, checks = lab_of(lab)
    source, scope = "\n\n".join(starter(lab, cell) for cell in cells), {}
    exec(source, scope)
    there = known.judge(checks, remote(source, known.names), NAME)
    own = known.judge(checks, scope, NAME)
    assert [each.right for each in there] == [each.right for each in own] and not passed(there)


@pytest.mark.parametrize("mistake", ["mean_of_means", "idle_ranks_leave", "everything_gathered"])
def test_a_mistake_of_lab_1_is_named(remote, solution, mistake):
    known, checks = lab_of(SOLVED[0])
    solved = solution(SOLVED[0])
    source = (
        source_of(solved)
        .replace("def step(", "def right(")
        .replace("return step(", "return right(")
    )
    there = remote(f"{source}\nstep = {mistake}\n", known.names)
    assert as_text(checks.findings(there["step"], NAME)) == as_text(
        checks.findings(getattr(solved, mistake), NAME)
    )


EMPTY = "np.empty((stage.samples[i], stage.width[do.what]))"
REUSED = f"shelf.setdefault((do.what, stage.samples[i]), {EMPTY})"
WAITS = "    for request in in_flight:\n        request.Wait()\n"


@pytest.mark.parametrize(
    ("old", "new", "law"), [(EMPTY, REUSED, "A received activation"), (WAITS, "", "Every message")]
)
def test_buffers_and_requests_of_lab_4_are_seen_across_processes(remote, solution, old, new, law):
    known, checks = lab_of("04_pipeline")
    source = source_of(solution("04_pipeline"))
    assert old in source
    there = remote("shelf = {}\n" + source.replace(old, new), known.names)
    findings = known.judge(checks, there, NAME)
    (finding,) = [each for each in findings if each.law.startswith(law)]
    assert finding.right is False, as_text(findings)


def test_the_streams_of_the_library_are_out_of_reach(remote):
    for source in (
        "from lib_dlhpc.schedules import PIPELINES\n",
        "from lib_dlhpc.schedules.pipeline import *\nimport lib_dlhpc.schedules\n",
    ):
        with pytest.raises(NotAllowed, match=r"lib_dlhpc\.schedules is not on the list"):
            check_imports(source, "step.py", (*COMPUTES, *LABS["04_pipeline"].imports))
    stolen = (
        "from lib_dlhpc.schedules.pipeline import Forward\n"
        "sys = type(Forward(0, 0)).__init__.__builtins__['__import__']\n"
        "def gpipe(rank, ranks, microbatches):\n"
        "    return sys('lib_dlhpc.schedules.pipelines').one_f_one_b(rank, ranks, microbatches)\n"
    )
    gpipe = remote(stolen, ["gpipe"])["gpipe"]
    with pytest.raises(Exception, match=r"is not on the list|no attribute"):
        gpipe(0, 2, 4)


def test_predictions_of_lab_10_are_counted_where_no_planner_reaches(remote, solution):
    source, track = source_of(solution("10_race_the_planner")), here(4)
    planner = remote(source, ["planner"])["planner"]
    assert len(attempt(planner, track, budget=5).asked) == 5
    more = source.replace("len(seen) < min(budget, len(layouts))", "len(seen) < budget + 1")
    with pytest.raises(OverBudget):
        attempt(remote(more, ["planner"])["planner"], track, budget=5)


def test_the_formulas_of_lab_6_hold(remote, checks, solution):
    own = checks("06_fit_the_model")
    names = ("state", "activations", "seconds")
    there = remote(source_of(solution("06_fit_the_model")), names)
    assert passed(own.formulas_findings(*there.values(), NAME))


def test_the_choice_of_lab_6_measures_across_processes(remote, checks, solution):
    lab = "06_fit_the_model"
    known, own = lab_of(lab)
    source = source_of(solution(lab))
    there = remote(source, known.names[:5])
    found = known.again(own, there, NAME)
    assert passed(found) and len(found) == 9, as_text(found)
    assert as_text(found[6:]) == as_text(own.choice_findings(solution(lab).choice, NAME))
    more = remote(source.replace("[:budget]", ""), known.names[:5])
    (legal,) = [each for each in known.again(own, more, NAME) if each.law.startswith("The choice")]
    assert legal.right is False and "prediction 13 of 12" in legal.words


def test_both_cuts_of_lab_5_hold(remote, solution):
    known, checks = lab_of("05_split_convolution")
    there = remote(source_of(solution("05_split_convolution")), checks.NAMES[:4])
    findings = known.again(checks, there, NAME)
    assert passed(findings) and len(findings) == 7, as_text(findings)


def test_the_solutions_import_what_may_be_imported(repository):
    for lab, known in LABS.items():
        if known.usual.endswith(".toml"):
            continue
        file = repository / "instructor_notes" / "solutions" / f"lab_{lab}.py"
        check_imports(file.read_text("utf-8"), file.name, (*COMPUTES, *known.imports))


def test_units_rings_and_layouts_of_lab_12_are_seen_across_processes(remote, solution):
    lab = "12_lay_out_a_language_model"
    known, checks = lab_of(lab)
    solved = solution(lab)
    there = remote(source_of(solved), known.names)
    own = known.judge(checks, vars(solved), NAME)
    findings = known.judge(checks, there, NAME)
    assert passed(findings) and len(findings) == known.laws, as_text(findings)
    assert as_text(findings) == as_text(own)
    freed = "        x = unit.forward(x)\n        unit.free()"
    assert freed in source_of(solved)
    held = remote(source_of(solved).replace(freed, freed.splitlines()[0]), known.names)
    (one,) = [each for each in checks.step_findings(held["step"], NAME) if each.law == checks.ONE]
    assert one.right is False and "while it still holds unit 0" in one.words


def test_a_layout_of_lab_12_cannot_be_found_with_the_library(remote):
    stolen = "from lib_dlhpc.planner import plan\n"
    legal = (*COMPUTES, *LABS["12_lay_out_a_language_model"].imports)
    with pytest.raises(NotAllowed, match=r"lib_dlhpc\.planner is not on the list"):
        check_imports(stolen, "step.py", legal)
    source = (
        "def choose(model, machine, layouts):\n"
        "    return layouts[0].__class__.__init__.__globals__['predict']\n"
        "def step(units, loss, x, y, comm, rate):\n"
        "    return units[0].seen()\n"
    )
    there = remote(source, ["choose", "step"])
    fits, _ = layout_findings(there["choose"], task_of(0))
    assert fits.right is False and "choose stopped with" in fits.words
    checks = lab_of("12_lay_out_a_language_model")[1]
    finding = checks.step_findings(there["step"], NAME)[0]
    assert finding.right is False and "unit has no seen" in finding.words, finding.words


def test_traces_of_lab_13_are_read_across_processes(remote, solution):
    lab = "13_read_a_trace"
    known, checks = lab_of(lab)
    source = source_of(solution(lab))
    findings = known.judge(checks, remote(source, known.names), NAME)
    assert passed(findings) and len(findings) == known.laws, as_text(findings)
    assert as_text(findings) == as_text(known.judge(checks, vars(solution(lab)), NAME))
    blamed = source.replace("lost[each.rank][last.rank]", "lost[last.rank][each.rank]")
    there = remote(blamed, known.names)
    assert as_text(known.judge(checks, there, NAME)).count("Rows and columns are swapped") == 1


def test_traces_of_lab_13_cannot_be_analyzed_with_the_library(remote):
    legal = (*COMPUTES, *LABS["13_read_a_trace"].imports)
    for stolen in (
        "from lib_dlhpc.timeline.analysis import analyze\n",
        "from lib_dlhpc.labs.read_a_trace import traces\n",
    ):
        with pytest.raises(NotAllowed, match=r"is not on the list"):
            check_imports(stolen, "step.py", legal)
    names = LABS["13_read_a_trace"].names
    around = "".join(
        f"def {name}(*given):\n    return given[0][0].__class__.__module__ + given[0][0].source\n"
        for name in names
    )
    checks = lab_of("13_read_a_trace")[1]
    findings = checks.findings(remote(around, names), NAME)
    assert not any(each.right for each in findings), as_text(findings)
    assert "stopped with AttributeError" in findings[0].words


LAB_14 = "14_fuse_attention"


def test_kernels_of_lab_14_run_across_processes(remote, solution):
    known, checks = lab_of(LAB_14)
    source = source_of(solution(LAB_14))
    there = remote(source, known.names)
    findings = known.judge(checks, there, NAME)
    assert passed(findings) and len(findings) == known.laws, as_text(findings)
    assert as_text(findings) == as_text(known.judge(checks, vars(solution(LAB_14)), NAME))


@pytest.mark.parametrize(
    "mistake",
    [
        *("the tile is larger than the chip", "nothing is deleted", "three equal tiles"),
        *("a new maximum changes nothing", "the output is not rescaled", "no mask"),
        *("all keys under a mask", "scores go to HBM"),
    ],
)
def test_a_mistake_of_lab_14_is_named_across_processes(remote, solution, mistake):
    """By its part of the laws, on the shapes that the learner sees: each operation of a chip is a message."""
    known, solved = lab_of(LAB_14)[0], solution(LAB_14)
    _, old, new, law, words = solved.MISTAKES[mistake]
    source = source_of(solved).split("# mistake:")[0]
    assert source.count(old) == 1
    there = judged(remote(source.replace(old, new), known.names), NAME, law, hidden=[False])
    (finding,) = [each for each in there if each.law.startswith(law)]
    assert finding.right is False and words in finding.words, as_text(there)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("chip.store(chip.full(1, 1, x.numbers[0, 0]), y, 0)", "'function' object is not"),
        ("chip.store(np.ones((1, 7)), y, 0)", "arrays reach the chip only by `load`"),
        ("float(chip.load(x, 0, 1, 0, 1))", "TypeError"),
        ("np.exp(chip.load(x, 0, 1))", "TypeError"),
        ("chip.room = 10**9; chip.full(1000, 1000)", "needs room for 1000000 numbers"),
        ("chip.run([[0, 0, 'scratch', [1, 1], {}]])", "there is no scratch"),
        ("chip.run([[0, 0, '__init__', [10**9], {}]])", "there is no __init__"),
        ("chip.operand(chip.load(x, 0, 1))", "chip has no operand"),
        ("chip._session.do(chip._number, 'held', (), {})", "no attribute 'held'"),
        ("x._session.do(x._number, 'numbers', None, None)", "matrix has no numbers"),
        ("chip.load(x, 0, 1).held()", "has no attribute 'held'"),
    ],
)
def test_a_chip_of_lab_14_cannot_be_opened(remote, kernel, words):
    """No kernel sees a number of HBM, or has more room than there is."""
    checks = lab_of(LAB_14)[1]
    source = f"import numpy as np\ndef softmax(chip, x, y):\n    {kernel}\n"
    softmax = remote(source, ["softmax"])["softmax"]
    tasks = checks.softmaxes_of(0)
    finding = checks.softmax_findings(softmax, tasks)[0]
    assert finding.right is False and words in finding.words, finding


def test_a_tile_of_lab_14_does_not_outlive_its_run(remote):
    source = (
        "kept = []\n"
        "def copy(chip, x, y):\n"
        "    kept.append(chip.load(x, 0, 1))\n"
        "    chip.store(kept[0], y, 0)\n"
    )
    copy = remote(source, ["copy"])["copy"]
    x = np.ones((1, 3))
    _, found = run(copy, 9, {"x": x}, {"y": x.shape})
    assert np.array_equal(found["y"], x)
    with pytest.raises(LabError, match="a tile of another run"):
        run(copy, 9, {"x": 2 * x}, {"y": x.shape})
