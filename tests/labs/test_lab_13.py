"""Lab 13: the starter fails with a reason, the solution passes, and each mistake is named."""

from itertools import product, repeat

import numpy as np
import pytest
from lab_answers import cells_of, found, run_cell

from lib_dlhpc.labs.findings import as_text, passed, seed_of
from lib_dlhpc.labs.read_a_trace import path_laws, traces, wait_laws, what_if_laws
from lib_dlhpc.labs.read_a_trace.account_laws import account_findings
from lib_dlhpc.labs.read_a_trace.chain import RANKS, chain
from lib_dlhpc.labs.read_a_trace.path_laws import path_findings
from lib_dlhpc.labs.read_a_trace.traces import (
    SLOW,
    STEPS,
    events_of,
    flights,
    run_trace,
    runs_of,
    share_of,
    step_trace,
    steps_of,
)
from lib_dlhpc.labs.read_a_trace.wait_laws import culprit_findings, wait_findings
from lib_dlhpc.labs.read_a_trace.what_if_laws import what_if_findings
from lib_dlhpc.simulation import program, ring, simulate_neighbors
from lib_dlhpc.timeline import Event, span
from lib_dlhpc.timeline.analysis import analyze
from lib_dlhpc.timeline.analysis.busy import busy
from lib_dlhpc.timeline.analysis.calls import calls
from lib_dlhpc.timeline.analysis.waits import waits
from lib_dlhpc.timeline.spans import in_order
from lib_dlhpc.timeline.table import from_rows

LAB = "13_read_a_trace"
NAMES = ["your name", "another", "x"]
HELPERS = ("covered", "meetings", "every_wait", "calls_of")
SEEDS = [seed_of(f"learner {k}") for k in range(6)]


def handed_in(own, solved, function="", old="", new=""):
    """All functions of the solution, text of one replaced, as from cells."""
    return cells_of(solved, (*HELPERS, *own.NAMES), {}, function, [(old, new)])


def judged(given, name, function):
    """The findings that depend on a function, on traces shown and hidden."""
    seed = seed_of(name)
    runs = [*runs_of(seed), *runs_of(seed, True)]
    if function == "account":
        return account_findings(given[function], [*steps_of(seed), *steps_of(seed, True)])
    if function in ("late_senders", "collective_waits"):
        return wait_findings(given["late_senders"], given["collective_waits"], runs)
    if function == "culprit":
        return culprit_findings(given[function], runs)
    if function == "what_if":
        return what_if_findings(given[function], runs)
    return path_findings(given["critical_path"], given["dominates"], runs)


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes(own, solved, name):
    findings = own.findings(vars(solved), name)
    assert passed(findings) and len(findings) == 13, as_text(findings)


def test_the_starter_fails_with_a_useful_message(own, started):
    scope = started("account", "late_senders", "culprit", "critical_path", "what_if")
    findings = own.findings(scope, "x")
    assert [each.law for each in findings if each.right] == [what_if_laws.SAME], as_text(findings)
    for law, words in (
        ("Account: what", "in which a rank waits"),
        ("Account: communication", "that computation hides"),
        ("Account: the rest", "too little"),
        ("Waits: for", "too little"),
        ("Path: its", "What does a rank do between two calls?"),
        ("Path: what", "the longest single piece"),
    ):
        assert words in found(findings, law).words, as_text(findings)


@pytest.mark.parametrize("name", NAMES)
def test_each_mistake_is_named(own, solved, name):
    for mistake, (function, old, new, law, words) in solved.MISTAKES.items():
        findings = judged(handed_in(own, solved, function, old, new), name, function)
        finding = found(findings, law)
        assert finding.right is False and words in finding.words, (mistake, as_text(findings))


OTHER_WAYS = [
    ("account", "    return rows", "    import numpy\n    return numpy.array(rows)"),
    ("late_senders", "min(send.start, each.stop) - each.start", "send.start - each.start"),
    ("critical_path", "if time > call.stop:", "if True:"),
    ("critical_path", "return pieces[::-1]", "return [list(each) for each in pieces[::-1]]"),
    (
        "dominates",
        "return max(sums, key=lambda each: sums[each])",
        "return list(max(sums, key=sums.get))",
    ),
]


@pytest.mark.parametrize(("function", "old", "new"), OTHER_WAYS)
def test_other_correct_solutions_pass(own, solved, function, old, new):
    findings = judged(handed_in(own, solved, function, old, new), "x", function)
    assert passed(findings), as_text(findings)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_analysis_of_the_package_blames_who_is_late(seed):
    for run in (*runs_of(seed), *runs_of(seed, True)):
        finding = analyze(run_trace(run)).findings[0]
        ends = (run.rank, (run.rank + 1) % run.ranks) if run.problem == SLOW else (run.rank,)
        assert finding.rank in ends, (run, finding)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_late_rank_costs_what_was_planted(seed):
    for run in (*runs_of(seed), *runs_of(seed, True)):
        if run.problem != SLOW:
            assert wait_laws.cost_of(run) == pytest.approx(STEPS * run.late, rel=0.1), run


def without(run):
    """How long a run takes whose late rank is as early as the others."""
    late = run.late * (np.arange(run.ranks) == run.rank)
    before, after, reading = traces._seconds(run)
    if run.problem == "sends late":  # it does this part behind its messages, as the others do
        before, after = before - late, after + late
    elif run.problem == "reads slowly":
        reading = reading - late
    else:
        after = after - late
    every = program(STEPS, run.ranks, before, after, reading, traces.SIZE)
    return span(simulate_neighbors(every, ring(traces._machine(run), run.ranks, -1, 1.0)))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_late_rank_costs_what_a_run_gains_where_it_is_not_late(seed):
    for run in (*runs_of(seed), *runs_of(seed, True)):
        if run.problem != SLOW:
            gain = span(run_trace(run)) - without(run)
            assert gain <= wait_laws.cost_of(run) <= 1.05 * gain, run


def tiny(*ranks):
    """The trace of the handout, with the ranks given."""
    rows = [
        (0, "communication", "send", "", 3.0, 3.0, 8, 1, 0, 0),
        (0, "communication", "collective", "MPI_Allreduce", 6.0, 7.0, 8, -1, 0, 1),
        (1, "communication", "receive", "", 1.0, 3.5, 8, 0, 0, 0),
        (1, "communication", "collective", "MPI_Allreduce", 4.5, 7.0, 8, -1, 0, 1),
        (2, "communication", "collective", "MPI_Allreduce", 2.5, 7.0, 8, -1, 0, 1),
    ]
    begins = [(rank, "compute", "input", "", 0.0, 0.0, 0, -1, 0, -1) for rank in ranks]
    return from_rows([*begins, *(row for row in rows if row[0] in ranks)], len(ranks), "")


@pytest.mark.parametrize("ranks", [(0, 1), (0, 1, 2)])
def test_waits_of_a_rank_in_a_step_are_added_and_those_of_several_ranks_are_not(solved, ranks):
    trace = in_order(tiny(*ranks))
    own = wait_laws.own_doings(trace, waits(calls(trace), busy(trace)))
    assert own[0, 1, 0] == 2 + 1.5
    assert wait_laws.cost_in(own, 0) == 3.5
    assert solved.culprit(events_of(trace), len(ranks)) == (0, 3.5)


def test_the_answers_of_the_handout_to_its_tiny_traces(solved):
    step = [
        Event(0, "compute", "forward", "", 0.0, 4.0, 0, -1, 0, -1),
        Event(0, "communication", "communication", "", 2.0, 7.0, 8, -1, 0, -1),
        Event(0, "communication", "communication", "", 3.0, 5.0, 8, 1, 0, -1),
        Event(0, "compute", "wait", "", 4.0, 7.0, 0, -1, 0, -1),
        Event(0, "compute", "update", "", 7.0, 8.0, 0, -1, 0, -1),
        Event(1, "compute", "forward", "", 0.0, 10.0, 0, -1, 0, -1),
    ]
    assert solved.account(step, 2) == [(5.0, 3.0, 2.0), (10.0, 0.0, 0.0)]
    events = events_of(tiny(0, 1, 2).sorted())
    assert solved.late_senders(events, 3) == [[0] * 3, [2.0, 0, 0], [0] * 3]
    assert solved.collective_waits(events, 3) == [[0] * 3, [1.5, 0, 0], [3.5, 0, 0]]
    pieces = [each for each in solved.critical_path(events, 3) if each[3] > each[2]]
    work = [(0, "computation", 0.0, 3.0), (0, "computation", 3.0, 6.0)]
    assert pieces == [*work, (0, "collective", 6.0, 7.0)]
    assert solved.dominates(pieces) == (0, "computation")
    flight = [[0, 0.5, 0], [0] * 3, [0] * 3]
    assert solved.what_if(events, 3, [1, 1, 1], flight) == 7.0
    assert solved.what_if(events, 3, [0.25, 1, 1], flight) == 3.5


@pytest.mark.parametrize("seed", SEEDS)
def test_a_critical_path_is_as_long_as_its_run(seed):
    for run in runs_of(seed):
        pieces = path_laws.right_path(run)
        total = sum(each.stop - each.start for each in pieces)
        assert total == pytest.approx(span(run_trace(run)), rel=1e-9)
        assert not path_laws.length_off(run, list(pieces)) and not path_laws.way_off(
            run, list(pieces)
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_no_change_is_faster_than_the_critical_path_allows(seed):
    for run in runs_of(seed):
        for case in what_if_laws.cases_of(run):
            least = what_if_laws.bound_of(case)
            assert least * (1 - what_if_laws.NEAR) <= case.seconds, case
            assert case.seconds <= span(run_trace(run)) * (1 + 1e-9), case


def test_a_message_on_the_slow_link_is_in_flight_for_as_much_longer_as_was_planted():
    run = next(each for each in runs_of(SEEDS[0]) if each.problem == SLOW)
    other, link = flights(run, 1.0), flights(run, share_of(run))
    a, b = run.rank, (run.rank + 1) % run.ranks
    for one, two in ((a, b), (b, a)):
        assert link[one][two] - other[one][two] == pytest.approx(run.late, rel=0.2)
    assert sum(x != y for x, y in zip(np.ravel(other), np.ravel(link), strict=True)) == 2


def test_learners_have_different_traces():
    seeds = [seed_of(f"learner {k}") for k in range(20)]
    for of in (steps_of, runs_of):
        assert len({of(seed) for seed in seeds}) == 20
        assert all(of(seed) != of(seed, True) for seed in seeds)
    assert len({run.rank for seed in seeds for run in runs_of(seed)}) > 4
    assert {run.problem for seed in seeds for run in runs_of(seed)} == {
        *("sends late", "reads slowly", "computes longer", SLOW)
    }


@pytest.mark.parametrize(
    ("gives", "words"),
    [
        (lambda *given: None, "returns nothing. Is a `return` missing?"),
        (lambda *given: 1 / 0, "stopped with ZeroDivisionError"),
        (lambda *given: "x", "not x."),
        (lambda events, ranks, *more: [[float("nan")] * 3] * ranks, ""),
        (lambda *given: 7, ""),
        (lambda *given: 10**400, ""),
        (lambda *given: 10**5000, "a int that is too long to show"),
        (lambda *given: True, "not True"),
        (lambda *given: "0.15", "not 0.15."),
        (lambda *given: np.float32("inf"), ""),
        (lambda *given: np.int64(3), ""),
        (lambda *given: [], ""),
        (lambda *given: [10**400, 10**400], ""),
        (lambda *given: (float("inf"), "send"), ""),
        (lambda *given: (0, float("nan")), ""),
        (lambda *given: repeat((0, "computation", 0.0, 1.0)), "does it ever end"),
        (lambda *given: (1 / 0 for _ in "x"), "stopped with ZeroDivisionError"),
        (lambda events, ranks, *more: [[None] * ranks] * ranks, ""),
        (lambda events, ranks, *more: [[10**400] * 3] * ranks, ""),
    ],
)
def test_what_is_no_answer_is_reported_in_a_line(own, gives, words):
    findings = own.findings(dict.fromkeys(own.NAMES, gives), "x")
    assert not any(each.right for each in findings)
    for each in findings:
        assert each.right is None or len(each.words) < 300, each
    assert words in findings[0].words and words in found(findings, "Waits: at").words


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([], "no pieces"),
        ([(0, "computation", 0.0)], "is not a piece"),
        ([(99, "computation", 0.0, 1.0)], "is not a piece"),
        ([(0, "waits", 0.0, 1.0)], "is not a piece"),
        ([(float("inf"), "computation", 0.0, 1.0)], "is not a piece"),
        ([(10**400, "computation", 0.0, 1.0)], "is not a piece"),
        ([(0.5, "computation", 0.0, 1.0)], "is not a piece"),
        ([(True, "computation", 0.0, 1.0)], "is not a piece"),
        ([("0", "computation", 0.0, 1.0)], "is not a piece"),
        ([(0, "computation", float("nan"), 1.0)], "is not a piece"),
        ([(0, "computation", 0.0, float("inf"))], "is not a piece"),
        ([(0, "computation", 0.0, 10**400)], "is not a piece"),
        ([(0, "computation", 0.0, None)], "is not a piece"),
        (repeat((0, "computation", 0.0, 1.0)), "more than 10000 values: does it ever end?"),
        ((1 / 0 for _ in "x"), "stopped with ZeroDivisionError"),
        ([(0, "computation", 1.0, 0.0)], "ends before it begins"),
        ([(np.int64(0), np.str_("computation"), 0.0, np.float64(0.01))], "start at the last event"),
        ([(0, "computation", 0.0, 0.01)], "start at the last event of any rank"),
    ],
)
def test_what_is_no_path_is_reported(own, solved, pieces, words):
    run = runs_of(SEEDS[0])[:1]
    length, way, _ = path_findings(lambda *given: pieces, solved.dominates, run)
    assert length.right is False and words in length.words and way.right is None


@pytest.mark.parametrize(
    "given",
    [
        *[(float("inf"), "send"), (float("nan"), "send"), (10**400, "send"), ("0", "send")],
        *[
            (True, "send"),
            (0.5, "send"),
            (None, None),
            (0, 10**5000),
            repeat(0),
            (1 / 0 for _ in "x"),
        ],
    ],
)
def test_what_does_not_dominate_is_reported(own, solved, given):
    findings = path_findings(solved.critical_path, lambda pieces: given, runs_of(SEEDS[0])[:1])
    assert [each.right for each in findings] == [True, True, False]
    assert len(findings[-1].words) < 300


def test_one_long_piece_is_as_long_as_the_run_and_no_path(own, solved):
    def whole(events, ranks):
        stop = max(each.stop for each in events)
        return [(0, "computation", 0.0, stop)]

    length, way, _ = path_findings(whole, solved.dominates, runs_of(SEEDS[0]))
    assert length.right and way.right is False


def test_answers_kept_from_the_traces_that_are_shown_fail_on_hidden_ones(own, solved):
    kept = {events[-1]: solved.culprit(events, ranks) for events, ranks in own.runs("x")}
    for first, last in product(range(RANKS), (False, True)):
        events = events_of(chain(first, last))
        kept[events[-1]] = solved.culprit(events, RANKS)
    given = dict(vars(solved), culprit=lambda events, ranks: kept.get(events[-1], (0, 0.0)))
    assert passed(culprit_findings(given["culprit"], runs_of(seed_of("x"))))
    assert found(own.findings(given, "x"), "Culprit: the").right is False


def test_a_function_that_spoils_its_events_spoils_only_its_own(own, solved):
    def spoils(events, ranks):
        rows = solved.account(events, ranks)
        events.clear()
        return rows

    findings = own.findings(dict(vars(solved), account=spoils), "x")
    assert passed(findings), as_text(findings)


def test_events_are_the_rows_of_the_package(own):
    for events, ranks in (*own.steps("x"), *own.runs("x")):
        assert all(isinstance(each, Event) for each in events)
        assert {each.rank for each in events} == set(range(ranks))
        assert events == sorted(events, key=lambda each: (each.rank, each.start))
    assert events_of(step_trace(steps_of(seed_of("x"))[0])) == own.steps("x")[0][0]


def test_what_the_notebook_shows_is_shown(own, solved, tmp_path, monkeypatch):
    f = vars(solved)
    assert "steps[2]" in own.traces("x").value and "runs[2]" in own.traces("x").value
    assert 0 < own.saved_percent("x") < 50 and own.plot("x", 0).to_dict()
    assert "All 3 hold" in own.check_account(f["account"], "x").value
    assert "All 2 hold" in own.check_waits(f["late_senders"], f["collective_waits"], "x").value
    assert "All 2 hold" in own.check_culprit(f["culprit"], "x").value
    assert "All 3 hold" in own.check_path(f["critical_path"], f["dominates"], "x").value
    assert "All 3 hold" in own.check_what_if(f["what_if"], "x").value
    monkeypatch.setattr(own, "HERE", tmp_path)
    given = handed_in(own, solved)
    assert "All 13 hold" in own.hand_in("x", *(given[each] for each in own.NAMES)).value
    assert own.findings(run_cell((tmp_path / "step.py").read_text("utf-8"), {}), "x")
