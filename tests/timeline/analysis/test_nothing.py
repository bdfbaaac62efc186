"""Where nothing is found, the one reason that holds is said: too seldom, too little, or no more than scatter."""

import numpy as np
import pytest
from mpi_world import Ranks

from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.analysis import analyse


def said(world):
    analysis = analyse(world.trace())
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
    assert text.startswith(f"No finding: too few repeats ({times}")
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
    assert f"too few repeats (3; it takes 4) to be sure; {words}." in said(world)


def test_what_is_little_is_said_to_be_little():
    world = Ranks(3)
    for _ in range(3):
        world.compute(0.1)
        world.compute(0.001, 2)
        world.together()
    assert said(world) == "No finding: what differs between ranks is below 2 % of the run."


def test_scatter_is_said_to_be_scatter():
    world, rng = Ranks(3), np.random.default_rng(1)
    for work in np.maximum(rng.normal(0.1, 0.03, (30, 3)), 0.01).tolist():
        world.compute(work)
        world.together()
    assert said(world) == "No finding: what differs between ranks is within its scatter."


def test_one_rank_differs_from_nobody_and_a_run_with_findings_says_nothing_of_it():
    alone = analyse(from_rows([(0, "compute", "forward", "f", 0.0, 1.0)], 1, "measured"))
    assert alone.nothing.endswith("below 2 % of the run.")
    world = Ranks(3)
    for _ in range(20):
        world.compute(0.1)
        world.compute(0.3, 2)
        world.together()
    late = analyse(world.trace())
    assert late.findings and late.nothing == ""
