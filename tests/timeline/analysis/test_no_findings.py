"""Where nothing is found, the one reason that holds is said: too seldom, too little, or no more than scatter."""

import numpy as np
import pytest
from mpi_world import Ranks

from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.analysis import analyze
from lib_dlhpc.timeline.analysis.significance import ENOUGH, FEW, student


def said(world):
    analysis = analyze(world.trace())
    assert analysis.findings == []
    return analysis.nothing


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("tail", [0.0, 0.2])
def test_who_is_late_too_seldom_is_named_and_how_often(times, tail):
    """Also where ranks compute alike after the last collective, which is one round more."""
    world = Ranks(3)
    for _ in range(times):
        world.compute(0.1)
        world.compute(0.3, 2)
        world.together()
    world.compute(tail)
    text = said(world)
    here = "1 collective" if times == 1 else f"{times} collectives"
    assert text.startswith(f"No finding: the trace is too short to be sure ({here}; it takes")
    assert "rank 2 computes most" in text or "rank 2 is the last to join MPI_Allreduce" in text


@pytest.mark.parametrize(
    ("eager", "words"),
    [
        (True, "rank 1 waits for rank 0, which sends late"),
        (False, "rank 0 waits for rank 1, which receives late"),
    ],
)
def test_of_messages_too(eager, words):
    world = Ranks(2)
    for _ in range(2):
        world.compute(0.01)
        world.message(1, 0, 10)
    for _ in range(3):
        world.compute(0.3, 1 - eager)
        world.message(0, 1, 1000, eager)
    assert f"too few repeats to be sure (3; it takes about 25); {words}." in said(world)


def test_what_is_little_is_said_to_be_little():
    world = Ranks(3)
    for _ in range(3):
        world.compute(0.1)
        world.compute(0.001, 2)
        world.together()
    assert said(world) == (
        "No finding: what differs between ranks is below 2% of the run in 3 collectives;"
        " looked for: ranks that compute more than the others, late at collectives."
    )


def test_scatter_is_said_to_be_scatter():
    world, rng = Ranks(3), np.random.default_rng(1)
    for work in np.maximum(rng.normal(0.1, 0.03, (30, 3)), 0.01).tolist():
        world.compute(work)
        world.together()
    assert said(world) == (
        "No finding: what differs between ranks is within its scatter in 30 collectives;"
        " looked for: ranks that compute more than the others, late at collectives."
    )


@pytest.mark.parametrize("source", ["updates", "collectives", "messages"])
@pytest.mark.parametrize("steps", [2, 5, 12, 24, 25, 40])
def test_of_scatter_a_short_trace_is_said_to_be_short_and_a_long_one_is_not(source, steps):
    """Rank 1 is slower, by less than its own scatter: only many steps could tell."""
    world, rng = Ranks(2), np.random.default_rng(steps)
    for work in np.clip(rng.normal([0.1, 0.104], 0.02, (steps, 2)), 0.06, 0.14).tolist():
        world.compute(work)
        if source == "messages":
            world.message(0, 1, 10)
            world.message(1, 0, 10)
        else:
            world.together()
        if source == "updates":
            for rank, now in enumerate(world.clock):
                world.rows.append((rank, "compute", "update", "update", now, now))
    analysis = analyze(world.trace())
    if analysis.findings:
        assert steps > FEW  # a matter of luck, which no short trace has
    elif steps < ENOUGH:
        assert "to be sure" in analysis.nothing and f"about {ENOUGH}" in analysis.nothing
        if source != "messages":
            unit = "step" if source == "updates" else "collective"
            assert f"too short to be sure ({steps} {unit}s;" in analysis.nothing
        assert "looked for" not in analysis.nothing
    else:
        assert "looked for: ranks that compute more than the others" in analysis.nothing
        there = "messages" if source == "messages" else "collectives"
        assert ("late at collectives" in analysis.nothing) == (there == "collectives")
        assert ("late senders" in analysis.nothing) == (there == "messages")


def test_enough_steps_are_those_that_show_a_difference_as_large_as_its_scatter():
    seen = {n: student(n - 1) / n**0.5 for n in (ENOUGH - 2, ENOUGH)}
    assert seen[ENOUGH] <= 1 < seen[ENOUGH - 2]


def test_one_rank_differs_from_nobody_and_a_run_with_findings_says_nothing_of_it():
    alone = analyze(from_rows([(0, "compute", "forward", "f", 0.0, 1.0)], 1, "measured"))
    assert "below 2% of the run" in alone.nothing
    world = Ranks(3)
    for _ in range(20):
        world.compute(0.1)
        world.compute(0.3, 2)
        world.together()
    late = analyze(world.trace())
    assert late.findings and late.nothing == ""
