"""What is planted is found, with its rank and amount; in a balanced run nothing is."""

import numpy as np
import pytest
from mpi_world import Ranks

from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.analysis import analyze

STEPS, WORK = 40, 0.01  # steps; s of computation in each


def noisy(seed, ranks, scatter=0.05):
    """Seconds of computation of every step and rank, which scatter alike."""
    drawn = np.random.default_rng(seed).normal(1.0, scatter, (STEPS, ranks))
    return (WORK * np.maximum(drawn, 0.1)).tolist()


def found(timeline, kind):
    return [finding for finding in analyze(timeline).findings if finding.kind == kind]


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_in_a_balanced_run(ranks, seed):
    """Ranks whose computation scatters by 5% wait for each other all the time, and nobody is to blame."""
    world = Ranks(ranks)
    for work in noisy(seed, ranks):
        world.compute(work)
        world.shift(10_000)
        world.shift(10_000, -1)
        world.compute(WORK / 2)
        world.together()
    said = analyze(world.trace())
    assert sum(seconds.sum() for seconds in said.waits.values()) > 0.02 * said.span
    assert said.findings == []


JITTER = {
    "of both signs": lambda rng, many: np.maximum(rng.normal(1.0, 0.3, many), 0.1),
    "of one sign": lambda rng, many: 1.0 + rng.exponential(0.3, many),
    "with a long tail": lambda rng, many: 1.0 + 0.05 * rng.lognormal(0.0, 1.5, many),
    "rare": lambda rng, many: 1.0 + (rng.random(many) < 0.05) * rng.uniform(0.0, 3.0, many),
}


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("jitter", JITTER)
@pytest.mark.parametrize("program", ["all", "ring", "root"])
def test_nothing_is_found_where_all_ranks_have_the_same_jitter(program, jitter, ranks):
    """However much it is: of equal ranks none stands out, in short runs and in long ones."""
    for steps in (3, 20, 100):
        for seed in range(2):
            world, rng = Ranks(ranks), np.random.default_rng([seed, ranks, steps])
            for _ in range(steps):
                world.compute((WORK * JITTER[jitter](rng, ranks)).tolist())
                if program == "ring":
                    world.shift(10_000)
                    world.shift(10_000, -1)
                elif program == "root":
                    world.together("MPI_Reduce", root=0)
                    world.together("MPI_Bcast", root=0)
                else:
                    world.together()
            said = analyze(world.trace())
            waited = sum(seconds.sum() for seconds in said.waits.values())
            assert waited > 0.02 * said.span or steps == 3
            assert said.findings == []


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_late_sender_is_found(seed, eager):
    """Rank 2 does its share after it should have sent, so rank 3 waits, and everybody computes the same."""
    world, late = Ranks(4), 0.004
    for work in noisy(seed, 4, 0.01):
        world.compute(work)
        world.compute(late, 2)
        world.message(2, 3, 1000, eager)
        for rank in (0, 1, 3):
            world.compute(late, rank)
        world.together()
    (one,) = found(world.trace(), "late sender")
    assert (one.rank, one.peer, one.where.rank, one.where.name) == (2, 3, 3, "MPI_Recv")
    assert one.seconds == pytest.approx(STEPS * late, rel=0.1)
    assert "Rank 3 waits" in one.sentence and "rank 2" in one.sentence
    assert found(world.trace(), "load imbalance") == []


def test_a_late_receiver_is_found():
    world, late = Ranks(4), 0.004
    for work in noisy(0, 4, 0.01):
        world.compute(work)
        world.compute(late, 3)
        world.message(2, 3, 1000, eager=False)
        for rank in (0, 1, 2):
            world.compute(late, rank)
        world.together()
    (one,) = found(world.trace(), "late receiver")
    assert (one.rank, one.peer, one.where.rank, one.where.name) == (3, 2, 2, "MPI_Send")
    assert one.seconds == pytest.approx(STEPS * late, rel=0.1)
    assert "for rank 3, which receives late what is sent to it (40 times)" in one.sentence


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ranks", [2, 5])
def test_imbalance_is_found_and_so_is_the_wait_it_makes(ranks, seed):
    world, more = Ranks(ranks), 0.003
    for work in noisy(seed, ranks, 0.02):
        world.compute(work)
        world.compute(more, 1)
        world.together()
    trace = world.trace()
    (one,) = found(trace, "load imbalance")
    assert one.rank == 1 and one.seconds == pytest.approx(STEPS * more, rel=0.1)
    (wait,) = found(trace, "wait at collective")
    assert wait.rank == 1 and wait.seconds == pytest.approx(STEPS * more, rel=0.1)
    assert wait.where.rank != 1 and wait.where.name == "MPI_Allreduce"
    assert "a rank that waits for it waits" in wait.sentence and " on average, all" in wait.sentence
    assert len(analyze(trace).findings) == 2


def test_of_next_to_nothing_nobody_computes_so_many_per_cent_more():
    for others, share in ((0.0, False), (1e-7, False), (0.002, True)):
        world = Ranks(3)
        for _ in range(STEPS):
            world.compute(others)
            world.compute(WORK, 1)
            world.together()
        (one,) = found(world.trace(), "load imbalance")
        assert ("%" in one.sentence) == share
        assert not share or "(513% more" in one.sentence  # a trace begins at the first call


@pytest.mark.parametrize(("name", "late"), [("MPI_Bcast", 0), ("MPI_Reduce", 3)])
def test_a_rooted_collective_waits_for_its_root_or_its_root_for_the_others(name, late):
    world, more = Ranks(4), 0.003
    for work in noisy(1, 4, 0.01):
        world.compute(work)
        world.compute(more, late)
        world.together(name, root=0)
        for rank in set(range(4)) - {late}:
            world.compute(more, rank)
        world.together()
    (wait,) = found(world.trace(), "wait at collective")
    assert wait.rank == late and wait.where.name == name
    assert wait.seconds == pytest.approx(STEPS * more, rel=0.1)


def test_who_is_held_up_is_not_to_blame():
    """Rank 3 computes longer; 2 waits for it, 1 for 2, 0 for 1: all of it is the doing of rank 3."""
    world, more = Ranks(4), 0.004
    for _ in range(STEPS):
        world.compute(WORK)
        world.compute(more, 3)
        for source in (3, 2, 1):
            world.message(source, source - 1, 1000)
        world.together()
    trace = world.trace()
    (one,) = found(trace, "late sender")
    assert (one.rank, one.peer) == (3, 2)
    assert one.seconds == pytest.approx(STEPS * more, rel=0.1)
    for rank in (1, 0):  # the waits themselves are told all the same
        assert analyze(trace).waits["late sender"][rank] == pytest.approx(STEPS * more, rel=0.1)


def test_one_long_delay_is_found_among_many_steps():
    world = Ranks(3)
    for step, work in enumerate(noisy(2, 3)):
        world.compute(work)
        world.compute(0.2 * (step == 17), 0)
        world.message(0, 1, 1000)
        world.together()
    (one,) = found(world.trace(), "late sender")
    assert one.rank == 0 and one.seconds == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize("size", [1_000_000, 4_000_000])
def test_a_slow_link_is_found(size):
    """Messages between ranks 1 and 2 take four times as long."""
    world = Ranks(5, lambda one, other: 4.0 if {one, other} == {1, 2} else 1.0)
    for work in noisy(3, 5, 0.01):
        world.compute(work)
        world.shift(size)
        world.shift(size // 2, -1)
        world.together()
    (one,) = found(world.trace(), "slow link")
    assert (one.rank, one.peer) == (1, 2)
    usual = sum(1e-5 + s / 1e9 for s in (size, size // 2))
    assert one.seconds == pytest.approx(STEPS * 3 * usual, rel=0.1)


def test_all_links_of_one_rank_are_found_and_two_kinds_of_link_are_no_finding():
    hub = Ranks(6, lambda one, other: 3.0 if 4 in (one, other) else 1.0)
    nodes = Ranks(6, lambda one, other: 3.0 if one // 3 != other // 3 else 1.0)
    for world in (hub, nodes):
        for work in noisy(4, 6, 0.01):
            world.compute(work)
            for far in (1, 2):
                world.shift(2_000_000, far)
            world.together()
    (one,) = found(hub.trace(), "slow link")
    assert (one.rank, one.peer) == (4, -1) and "to and from rank 4" in one.sentence
    assert found(nodes.trace(), "slow link") == []


@pytest.mark.parametrize("stream", ["input", "checkpoint"])
def test_a_slow_disk_is_found(stream):
    rows, rng = [], np.random.default_rng(5)
    for step in range(STEPS):
        for rank in range(4):
            begin = 0.02 * step
            rows.append((rank, "compute", "forward", "forward", begin, begin + 0.01))
            took = (0.004 + 0.006 * (rank == 2)) * rng.normal(1.0, 0.05)
            rows.append((rank, stream, stream, "disk", begin, begin + took))
    said = analyze(from_rows(rows, 4, "measured"))
    (one,) = said.findings
    assert (one.kind, one.rank, one.where.rank) == ("slow disk", 2, 2)
    assert one.seconds == pytest.approx(STEPS * 0.006, rel=0.1)
