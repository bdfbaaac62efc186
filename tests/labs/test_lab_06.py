"""Lab 6: the starter fails with a reason, the solution passes, and each mistake is named."""

import inspect
import linecache

import pytest

from lib_dlhpc.explore.labs.lab import save
from lib_dlhpc.labs.findings import as_text, passed
from lib_dlhpc.labs.fit_the_model import choice as choices
from lib_dlhpc.labs.fit_the_model import small_run
from lib_dlhpc.labs.fit_the_model.capped_run import CappedRun, available
from lib_dlhpc.labs.fit_the_model.choice import FITS, HINTS, LEGAL, QUICK, STAGES
from lib_dlhpc.labs.fit_the_model.estimates import COMPUTING, LAWS, NEAR, estimate_findings
from lib_dlhpc.labs.fit_the_model.formulas import KEPT, STATE, TIME, block_bytes
from lib_dlhpc.labs.fit_the_model.small_run import CAP, CHEAP, SMALL, cheapest
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory.rank_memory import peak

LAB = "06_fit_the_model"
NAMES = ["your name", "another", "x"]
FORMULAS = ("state", "activations", "seconds")
real = pytest.mark.skipif(not available(), reason="this system does not report peak memory")


@pytest.fixture(scope="module")
def own(checks):
    return checks(LAB)


@pytest.fixture(scope="module")
def solved(solution):
    return solution(LAB)


def found(findings, law):
    (finding,) = [each for each in findings if each.law.startswith(law)]
    return finding


def as_cell(function, *changes):
    """The function as from a cell, with text of it replaced."""
    source = inspect.getsource(function)
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    name, scope = f"<cell {hash(source)}>", {}
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), scope)
    return scope[function.__name__]


def text_of(own, name, **fields):
    """The [strategy] of a learner who found the quickest."""
    fields = own.best(name)[1] | fields
    batch = (
        own.task_of(name).batch * fields["tensor"] * fields["pipeline"] // own.task_of(name).gpus
    )
    fields = {"batch": batch, "sequence_parallel": fields["tensor"] > 1} | fields
    shown = {
        k: str(v).lower() if isinstance(v, bool) else repr(v).replace("'", '"')
        for k, v in fields.items()
    }
    return lambda *given: "[strategy]\n" + "\n".join(f"{k} = {v}" for k, v in shown.items())


def small(own, name):
    return own.small_of(own.seed_of(name))


def way_of(own, name):
    """How the learner's small run gets under its cap."""
    way = cheapest(small(own, name))
    return lambda: {way: {"microbatches": 8, "recompute": "full", "offload": "all"}[way]}


def formulas(own, solved, name, function="", *changes):
    given = [
        as_cell(getattr(solved, each), *(changes if each == function else ())) for each in FORMULAS
    ]
    return own.formulas_findings(*given, name)


@pytest.mark.parametrize("name", NAMES)
def test_the_formulas_and_the_choice_of_the_solution_hold(own, solved, name):
    findings = formulas(own, solved, name) + own.choice_findings(text_of(own, name), name)
    assert passed(findings), as_text(findings)


def solved_choice(solved, changes=()):
    """The solution's choice, text of it replaced."""
    source = inspect.getsource(solved)
    for old, new in changes:
        assert source.count(old) >= 1, old
        source = source.replace(old, new, 1)
    scope = {}
    exec(source, scope)
    return scope["choice"]


@pytest.mark.parametrize("name", [*NAMES, *(f"learner {k}" for k in range(4))])
def test_the_choice_of_the_solution_holds_on_a_hidden_run_too(own, solved, name):
    findings = own.choice_findings(solved.choice, name, hidden=True)
    assert passed(findings) and len(findings) == 3, as_text(findings)


def solved_estimate(solved, *changes):
    """The solution's estimate, text of it replaced."""
    source = inspect.getsource(solved.estimate)
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    scope = dict(vars(solved))
    exec(source, scope)
    return scope["estimate"]


@pytest.mark.parametrize("name", [*NAMES, *(f"learner {k}" for k in range(6))])
def test_the_estimate_of_the_solution_holds(own, solved, name):
    findings = estimate_findings(solved.estimate, own.task_of(name))
    assert passed(findings) and len(findings) == 3, as_text(findings)


@pytest.mark.parametrize("name", NAMES)
def test_each_mistake_of_the_estimate_is_named(own, solved, name):
    for mistake, (old, new, law, words) in solved.ESTIMATES.items():
        findings = estimate_findings(solved_estimate(solved, (old, new)), own.task_of(name))
        finding = found(findings, law)
        assert finding.right is False and words in finding.words, (mistake, as_text(findings))


def test_a_fast_choice_does_not_excuse_a_wrong_estimate(own, solved, monkeypatch):
    monkeypatch.setattr(small_run, "available", lambda: False)
    given = dict(vars(solved)) | {"choice": text_of(own, "x"), "small": way_of(own, "x")}
    given["estimate"] = lambda *run: {t: 2 * v for t, v in solved.estimate(*run).items()}
    wrong = {each.law for each in own.findings(given, "x") if each.right is False}
    assert wrong - {FITS, QUICK, LEGAL} == set(LAWS.values())
    assert f"{NEAR:.0%} of the library's" in (own.HERE / "README.md").read_text().replace("\n", " ")


@pytest.mark.parametrize("name", NAMES)
def test_each_mistake_of_the_choice_is_named(own, solved, name):
    for mistake, (changes, law, words) in solved.CHOICES.items():
        findings = own.choice_findings(solved_choice(solved, changes), name)
        finding = found(findings, law)
        assert finding.right is False and words in finding.words, (mistake, as_text(findings))


def test_the_best_of_the_run_that_is_shown_does_not_hold_on_a_hidden_one(own):
    for name in NAMES:
        printed = text_of(own, name)
        assert passed(own.choice_findings(printed, name))
        findings = own.choice_findings(printed, name, hidden=True)
        wrong = [each for each in findings if each.right is False]
        hidden = choices.task_of(own.seed_of(name), hidden=True)
        assert hidden != own.task_of(name) and len(findings) == 3
        (one,) = wrong
        assert one.words.startswith(f"A run that is not shown, {choices.named(hidden)}. "), one


def test_a_choice_that_fails_is_not_tried_on_a_hidden_run(own, solved):
    asked = []

    def plain(model, machine, batch, measure, budget):
        asked.append(model)
        return "[strategy]"

    findings = own.choice_findings(plain, "x", hidden=True)
    assert found(findings, FITS).right is False and len(asked) == 1
    assert "not shown" not in as_text(findings)


def test_what_a_choice_measures_is_what_the_library_predicts(own):
    def choose(model, machine, batch, measure, budget):
        seen.append((measure(text), model, machine, batch, budget))
        return text

    seen, task = [], own.task_of("x")
    text = text_of(own, "x")()
    found_one = own.chosen(choose, "x")
    ((measured, model, machine, batch, budget),) = seen
    assert measured.seconds == pytest.approx(own.best("x")[0])
    assert measured.bytes == peak(found_one).total <= machine["memory"]
    assert (batch, budget, machine["gpus"]) == (task.batch, choices.BUDGET, task.gpus)
    plain = predict(own.experiment_of(task))
    alone = batch * model["flop"] / machine["rate"]
    assert alone / task.gpus == pytest.approx(float(plain.forward + plain.backward))


def test_what_is_measured_has_to_be_legal(own):
    finding = found(
        own.choice_findings(lambda *given: given[3]("[strategy]\nzero = 4"), "x"), LEGAL
    )
    assert finding.right is False and "zero" in finding.words


def test_a_choice_that_does_not_end_is_stopped(own, monkeypatch):
    monkeypatch.setattr(choices, "PATIENCE", 0.1)

    def walking(*given):
        while given:
            pass

    words = found(own.choice_findings(walking, "x"), LEGAL).words
    assert "after 0 predictions. Which loop never ends?" in words


def both_kinds(own):
    """A name for each kind of small run."""
    names = {cheapest(small(own, f"learner {k}")): f"learner {k}" for k in range(12)}
    return names


def test_learners_get_small_runs_of_different_kinds(own):
    assert {"microbatches", "offload"} <= set(both_kinds(own))


@real
@pytest.mark.parametrize("way", ["microbatches", "offload"])
def test_the_small_run_of_the_solution_holds(own, solved, way):
    name = both_kinds(own)[way]
    findings = own.small_findings(way_of(own, name), solved.small_peak, small(own, name))
    assert passed(findings), as_text(findings)
    assert "Measured" in found(findings, CAP).words


@real
def test_what_is_too_large_is_refused_and_a_costly_choice_is_named(own, solved):
    name = both_kinds(own)["microbatches"]
    refused = own.small_findings(lambda: {"microbatches": 1}, solved.small_peak, small(own, name))
    assert "Refused by the system" in found(refused, CAP).words
    dear = own.small_findings(lambda: {"offload": "all"}, solved.small_peak, small(own, name))
    assert (
        found(dear, CAP).right
        and "It fits, but a cheaper choice would fit as well" in found(dear, CHEAP).words
    )


@pytest.mark.parametrize(
    ("way", "ways", "words"),
    [
        ("offload", {"microbatches": 64, "recompute": "full"}, "without recompute = full"),
        ("offload", {"microbatches": 64}, "without microbatches = 64"),
        ("offload", {"recompute": "full"}, "What do you gain from one more forward pass"),
    ],
)
def test_a_way_that_is_not_needed_is_named(own, solved, monkeypatch, way, ways, words):
    monkeypatch.setattr(small_run, "available", lambda: False)
    name = both_kinds(own)[way]
    given = way_of(own, name)() | ways
    findings = own.small_findings(lambda: given, solved.small_peak, small(own, name))
    assert found(findings, CAP).right and found(findings, CHEAP).right is False
    assert words in found(findings, CHEAP).words, found(findings, CHEAP).words


@pytest.mark.parametrize("name", NAMES)
def test_the_starter_fails_with_a_useful_message(own, started, name, monkeypatch):
    monkeypatch.setattr(small_run, "available", lambda: False)
    scope = started("state", "activations", "seconds", "estimate", "choice", "small", "small_peak")
    findings = own.findings(scope, name)
    assert not any(each.right for each in findings if each.law not in (LEGAL,))
    assert "All GPUs share the work" in found(findings, COMPUTING).words
    assert "No GPU stores all of" in found(findings, STATE).words
    assert "only the input of the block" in found(findings, KEPT).words
    assert "Which stages wait for the first microbatch" in found(findings, TIME).words
    assert "What makes" in found(findings, FITS).words
    assert "what each layer stores" in found(findings, SMALL).words


@pytest.mark.parametrize("name", NAMES)
def test_each_mistake_is_named(own, solved, name):
    for mistake, (function, old, new, law, words) in solved.MISTAKES.items():
        finding = found(formulas(own, solved, name, function, (old, new)), law)
        assert finding.right is False and words in finding.words, (mistake, finding)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[strategy]\ntensor = 3", "tensor"),
        ("[strategy]\nbatch = 1", "A step must have"),
        ("[strategy]\nzero = 4", "zero"),
        ("[strategy]\ntensor = 'two'", "tensor = 'two'"),
        ("[strategy]\npipeline = inf", "pipeline = inf"),
        ("strategy = 3", "expected a table"),
        ("[strategy]\nnodes = 1", "fixed by the task"),
        ("[machine]\nnodes = 1", "fixed by the task"),
        ("strategy", "TOML"),
        ("[strategy]\npipeline = 2\nschedule = 'zb-h1'\noffload = 'all'", "offload"),
    ],
)
def test_an_illegal_choice_is_refused_with_a_reason(own, text, words):
    finding = found(own.choice_findings(lambda *given: text, "x"), LEGAL)
    assert finding.right is False and words in finding.words


@pytest.mark.parametrize("name", [f"learner {k}" for k in range(6)])
def test_every_learner_must_choose_and_can(own, name):
    plain = own.experiment_of(own.task_of(name))
    assert peak(plain).total > 1.2 * plain.machine.device.memory
    seconds, fields = own.best(name)
    slow = own.choice_findings(text_of(own, name, recompute="full", microbatches=1, zero=0), name)
    assert fields and seconds > 0
    assert not passed(slow)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"recompute": "full"}, "difference: recomputation,"),
        ({"pipeline": 4, "zero": 1, "microbatches": 16}, "difference: exposed messages of stages,"),
        (
            {"tensor": 8, "pipeline": 2, "microbatches": 16},
            "difference: exposed messages of tensor groups,",
        ),
        (
            {"zero": 3, "pipeline": 1, "microbatches": 4},
            "difference: exposed messages of replicas,",
        ),
        ({"pipeline": 4, "microbatches": 4}, "difference: pipeline bubble,"),
    ],
)
def test_what_is_too_slow_is_explained_by_what_it_has_more_of_than_the_quickest(own, fields, words):
    name = "Gita"  # the quickest: 2 stages, 8 microbatches, ZeRO 2, nothing recomputed
    dear = own.choice_findings(text_of(own, name, **fields), name)
    assert found(dear, FITS).right
    assert found(dear, QUICK).right is False
    assert words in found(dear, QUICK).words, found(dear, QUICK).words


def test_stages_whose_gpus_send_a_slice_each_are_not_what_slows_a_step(own):
    """With sequence parallelism or without: the group sends one copy, so its own messages cost more."""
    assert "sends a slice of the activations" in HINTS[STAGES]
    fields = {"tensor": 4, "pipeline": 4, "microbatches": 32, "zero": 2}
    for sequence in (False, True):
        text = text_of(own, "Lena Vogel", **fields, sequence_parallel=sequence)
        finding = found(own.choice_findings(text, "Lena Vogel"), QUICK)
        assert "difference: exposed messages of stages" not in finding.words


def test_a_block_of_the_library_is_that_of_the_paper(own, solved):
    task = own.task_of("x")

    def one(layers, **strategy):
        return own.experiment_of(task._replace(layers=layers), **strategy)

    for tensor, recompute in ((1, "none"), (4, "none"), (2, "selective"), (1, "full")):
        stored = solved.activations(task.sequence, 3, task.hidden, task.heads, tensor, recompute)
        assert block_bytes(one, 3, tensor, recompute) == pytest.approx(stored)


def test_seconds_are_those_of_a_pipeline_of_equal_stages(own, solved):
    from lib_dlhpc.schedules import PIPELINES
    from lib_dlhpc.schedules.pipeline_proof import bubble

    for p, m in ((4, 8), (2, 1)):
        waits = bubble(PIPELINES["1f1b"](p, m))
        assert solved.seconds(p * 1.0, p, p, m, "none") == pytest.approx(1 + waits)


def test_the_quickest_of_the_search_is_not_beaten_by_what_the_library_finds(own):
    for name in NAMES:
        seconds, fields = own.best(name)
        again = own.experiment_of(
            own.task_of(name),
            **fields,
            sequence_parallel=fields["tensor"] > 1,
            batch=own.task_of(name).batch
            * fields["tensor"]
            * fields["pipeline"]
            // own.task_of(name).gpus,
        )
        assert float(predict(again).step_time) == pytest.approx(seconds)
        assert predict(again).fits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("zero", range(4))
def test_no_other_level_of_zero_is_quicker_than_the_quickest(own, name, zero):
    findings = own.choice_findings(text_of(own, name, zero=zero), name)
    assert found(findings, LEGAL).right
    if found(findings, FITS).right:
        own_choice = own.chosen(text_of(own, name, zero=zero), name)
        assert float(predict(own_choice).step_time) >= own.best(name)[0] * (1 - 1e-9)


def test_learners_have_different_tasks(own):
    assert len({own.task_of(f"learner {k}") for k in range(12)}) > 6
    assert len({str(own.best(f"learner {k}")[1]) for k in range(4)}) > 1


def test_what_the_notebook_shows_is_shown(own, solved):
    assert "Target: it fits" in own.task("x").value
    assert "Cap:" in own.small_task("x").value
    assert own.largest_term("x") in ("weights", "gradients", "optimizer state", "activations")
    assert (
        "All 3 hold" in own.check_formulas(*(getattr(solved, each) for each in FORMULAS), "x").value
    )
    assert "All 3 hold" in own.check_estimate(solved.estimate, "x").value
    assert "All 3 hold" in own.check_choice(text_of(own, "x"), "x").value


def test_nothing_is_started_before_the_formulas_hold(own, solved, monkeypatch):
    monkeypatch.setattr(own, "HERE", None)
    wrong = as_cell(solved.state, ("zero >= 1", "zero >= 9"))
    rest = (
        solved.activations,
        solved.seconds,
        solved.estimate,
        text_of(own, "x"),
        way_of(own, "x"),
        solved.small_peak,
    )
    assert "Not yet" in own.on_ranks("x", wrong, *rest).value


@real
def test_zero_on_real_ranks_takes_what_the_formula_says(own, solved, on_ranks, tmp_path):
    file = save(solved.state, tmp_path / "step.py")
    text = on_ranks(own.HERE / "checks.py", str(file), "x", ranks=4)
    assert "4 real ranks" in text and "All 3 hold" in text, text


@pytest.mark.parametrize(
    ("function", "changes"),
    [
        (
            "state",
            [
                (
                    "return parameters * (",
                    "import numpy as np\n\n    return np.float64(parameters) * (",
                )
            ],
        ),
        (
            "activations",
            [("10 + 24 / t + scores", "34 + scores if t == 1 else 10 + 24 / t + scores")],
        ),
        (
            "seconds",
            [
                (
                    "alone / gpus * again * (1 + (p - 1) / m)",
                    "alone * again / gpus / m * (m + p - 1)",
                )
            ],
        ),
    ],
)
def test_other_correct_solutions_pass(own, solved, function, changes):
    assert passed(formulas(own, solved, "x", function, *changes))


def test_a_choice_may_say_more_than_it_must(own):
    data = own.task_of("x").gpus // (own.best("x")[1]["tensor"] * own.best("x")[1]["pipeline"])
    assert passed(own.choice_findings(text_of(own, "x", data=data, schedule="1f1b"), "x"))


@pytest.mark.parametrize("gives", [None, "much", float("nan")])
def test_what_is_no_number_is_reported(own, solved, gives):
    findings = own.formulas_findings(lambda *a: gives, solved.activations, solved.seconds, "x")
    assert findings[0].right is False and findings[1].right


def test_where_the_system_reports_no_peak_the_ledger_is_used(own, solved, monkeypatch):
    monkeypatch.setattr(small_run, "available", lambda: False)
    name = both_kinds(own)["offload"]
    findings = own.small_findings(way_of(own, name), solved.small_peak, small(own, name))
    assert passed(findings) and "Not run" in found(findings, CAP).words
    plain = own.small_findings(dict, solved.small_peak, small(own, name))
    assert found(plain, CAP).right is False


def test_an_unknown_option_is_reported(own, solved):
    findings = own.small_findings(lambda: {"zero": 3}, solved.small_peak, small(own, "x"))
    assert "zero: legal: microbatches, recompute, offload" in found(findings, CAP).words


def test_more_microbatches_than_help_are_refused_before_they_run(own, solved, monkeypatch):
    monkeypatch.setattr(small_run, "capped", None)
    name = both_kinds(own)["microbatches"]
    findings = own.small_findings(
        lambda: {"microbatches": 1536}, solved.small_peak, small(own, name)
    )
    assert "microbatches = 1536: legal: 1 to 64" in found(findings, CAP).words


def test_a_run_that_fits_by_the_ledger_alone_is_told_to_leave_room(own, solved, monkeypatch):
    monkeypatch.setattr(small_run, "available", lambda: True)
    monkeypatch.setattr(small_run, "capped", lambda *a: CappedRun(refused="MemoryError"))
    name = both_kinds(own)["microbatches"]
    findings = own.small_findings(way_of(own, name), solved.small_peak, small(own, name))
    assert "leave some room" in found(findings, CAP).words
