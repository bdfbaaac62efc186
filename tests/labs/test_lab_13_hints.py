"""Lab 13: mistakes of those who follow the handout are named by their cause."""

import inspect
from itertools import product

import pytest
from lab_answers import found, run_cell

from lib_dlhpc.labs.findings import as_text, passed, seed_of
from lib_dlhpc.labs.read_a_trace import wait_laws
from lib_dlhpc.labs.read_a_trace.account_laws import account_findings
from lib_dlhpc.labs.read_a_trace.chain import (
    COST,
    COST_LAST,
    FACTORS,
    RANKS,
    chain,
    flight_of,
    replayed,
)
from lib_dlhpc.labs.read_a_trace.path_laws import path_findings
from lib_dlhpc.labs.read_a_trace.traces import runs_of, steps_of
from lib_dlhpc.labs.read_a_trace.wait_laws import culprit_findings, wait_findings
from lib_dlhpc.labs.read_a_trace.what_if_laws import what_if_findings
from lib_dlhpc.timeline.analysis.busy import busy
from lib_dlhpc.timeline.analysis.calls import calls
from lib_dlhpc.timeline.analysis.waits import waits
from lib_dlhpc.timeline.spans import in_order

LAB = "13_read_a_trace"
HELPERS = ("covered", "meetings", "every_wait", "calls_of")
NAMES = ["your name", "another", "x"]

# the function, its text, what stands there instead, the law that must break, its words
MISTAKES = {
    "messages are left out": (
        "account",
        'each.stream == "communication"]',
        'each.stream == "communication" and each.peer < 0]',
        "Account: communication",
        "messages between the stages of a pipeline are not part of an exchange",
    ),
    "the rest follows": (
        "account",
        "rows.append((computes, both - computes, run - both))",
        "rows.append((computes, covered(talk), run - computes - covered(talk)))",
        "Account: the rest",
        "It follows from the column of exposed communication",
    ),
    "the last message alone": (
        "late_senders",
        "lost[each.rank][send.rank] += ",
        "lost[each.rank][send.rank] = ",
        "Waits: for",
        "only the last",
    ),
    "the last collective alone": (
        "collective_waits",
        "lost[each.rank][last.rank] += ",
        "lost[each.rank][last.rank] = ",
        "Waits: at",
        "only the last",
    ),
    "the last message of a peer": (
        "late_senders",
        "sent = {each.match: each for",
        "sent = {each.match: max((x for x in events if (x.kind, x.rank, x.peer) =="
        ' ("send", each.rank, each.peer)), key=lambda x: x.start) for',
        "Waits: for",
        "the send with the same `match`",
    ),
    "what a rank waited itself is charged": (
        "culprit",
        "other.start - one.start - excuse",
        "other.start - one.start",
        "Culprit: the",
        "waited",
    ),
    "the allreduce alone": (
        "culprit",
        "for one, other in waits:",
        "for one, other in (each for each in waits if each[0].kind == 'collective'):",
        "Culprit: the",
        "also charge ranks for waits in receives",
    ),
    "a receive that did not wait": (
        "critical_path",
        "cause = {id(one): other for one, other in every_wait(events)}",
        "cause = {id(one): other for one, other in every_wait(events)}\n"
        "    sent = {each.match: each for each in events if each.kind == 'send'}\n"
        "    cause |= {id(x): sent[x.match] for x in events if x.kind == 'receive'}",
        "Path: from",
        "did not wait",
    ),
    "the first to join": (
        "critical_path",
        "cause = {id(one): other for one, other in every_wait(events)}",
        "cause = {id(one): other for one, other in every_wait(events)}\n"
        "    for those in meetings(events).values():\n"
        "        first = min(those, key=lambda x: x.start)\n"
        "        cause |= {id(x): first for x in those if x is not first}",
        "Path: from",
        "when the last rank joins",
    ),
    "an allreduce as long as it was": (
        "what_if",
        "max(those) + moves",
        "max(those) + call.stop - call.start",
        "What if nothing",
        "print the first that does not",
    ),
    "an allreduce that takes no time": (
        "what_if",
        "max(those) + moves",
        "max(those)",
        "What if nothing",
        "takes as long as in the trace",
    ),
    "a receive ends before it begins": (
        "what_if",
        "max(start, sent + flight[call.peer][rank])",
        "sent + flight[call.peer][rank]",
        "What if a rank",
        "when does the receive end?",
    ),
    "the run starts at 0": (
        "what_if",
        "return max(clock) - begin",
        "return max(clock)",
        "What if nothing",
        "first row starts at",
    ),
    "a send ends at 0": (
        "what_if",
        "stop = start + call.stop - call.start",
        "stop = call.stop - call.start",
        "What if nothing",
        "call by call",
    ),
    "the last wait of a step alone": (
        "culprit",
        "lost[other.rank][step][one.rank] += ",
        "lost[other.rank][step][one.rank] = ",
        "Culprit: the",
        "add up both waits of a step",
    ),
    "the longest wait of a step": (
        "culprit",
        "lost[other.rank][step][one.rank] += max(0.0, other.start - one.start - excuse)",
        "lost[other.rank][step][one.rank] = max(\n"
        "            lost[other.rank][step][one.rank], other.start - one.start - excuse)",
        "Culprit: what",
        "add up both waits of a step",
    ),
    "no receive is a receive": (
        "late_senders",
        'if each.kind == "receive":',
        'if each.kind == "receipt":',
        "Waits: for",
        "the message is sent at",
    ),
    "every wait twice": (
        "collective_waits",
        "+= min(last.start, each.stop) - each.start",
        "+= 2 * (min(last.start, each.stop) - each.start)",
        "Waits: at",
        "joins last, at",
    ),
    "half of it": (
        "account",
        "covered(work), covered(work + talk)",
        "covered(work) / 2, covered(work + talk)",
        "Account: what",
        "Only rows of this rank count",
    ),
    "a quarter of it": (
        "culprit",
        "return rank, cost[rank]",
        "return rank, cost[rank] / 4",
        "Culprit: what",
        "In the first step, it costs",
    ),
    "excuses of earlier steps": (
        "culprit",
        "since = ends[step - 1] if step else 0.0",
        "since = 0.0",
        "Culprit: what",
        "Its waits before the last allreduce do not count",
    ),
    "the first call does not move": (
        "what_if",
        "work[rank] * (call.start - before[rank])",
        "(work[rank] if done[rank] else 1) * (call.start - before[rank])",
        "What if a rank",
        "from the start of the run",
    ),
}


def judged(given, name, function):
    """The findings that depend on a function, on the traces that are shown."""
    runs = runs_of(seed_of(name))
    if function == "account":
        return account_findings(given[function], steps_of(seed_of(name)))
    if function in ("late_senders", "collective_waits"):
        return wait_findings(given["late_senders"], given["collective_waits"], runs)
    if function == "culprit":
        return culprit_findings(given[function], runs)
    if function == "what_if":
        return what_if_findings(given[function], runs)
    return path_findings(given["critical_path"], given["dominates"], runs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_cause_is_named(own, solved, mistake, name):
    function, old, new, law, words = MISTAKES[mistake]
    scope = {}
    for each in (*HELPERS, *own.NAMES):
        source = inspect.getsource(getattr(solved, each))
        if each == function:
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        run_cell(source, scope)
    findings = judged(scope, name, function)
    finding = found(findings, law)
    assert finding.right is False and words in finding.words, as_text(findings)


@pytest.mark.parametrize("first", range(RANKS))
def test_a_rank_that_passes_a_delay_on_is_not_the_culprit(solved, first):
    trace = in_order(chain(first))
    own = wait_laws.own_doings(trace, waits(calls(trace), busy(trace)))
    costs = [wait_laws.cost_in(own, (first + k) % RANKS) for k in range(RANKS)]
    assert costs == [COST, 3.0, 0.0]
    assert solved.culprit(list(chain(first)), RANKS) == (first, COST)
    assert solved.culprit(list(chain(first, True)), RANKS) == (first, COST_LAST)


def test_the_chain_is_replayed_as_by_hand(solved):
    assert [replayed(factor, False) for factor in FACTORS] == [13.5, 6.0]
    for factor, last in product(FACTORS, (False, True)):
        found = solved.what_if(list(chain(0, last)), RANKS, [factor, 1.0, 1.0], flight_of(0))
        assert found == pytest.approx(replayed(factor, last), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_who_charges_all_waits_never_passes(solved, name):
    scope = {}
    for each in ("meetings", "every_wait", "culprit"):
        source = inspect.getsource(getattr(solved, each)).replace(" - excuse)", ")")
        run_cell(source, scope)
    assert not passed(culprit_findings(scope["culprit"], runs_of(seed_of(name))))
