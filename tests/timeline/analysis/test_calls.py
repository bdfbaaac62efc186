"""Calls are put together whatever their numbers are; traces that cannot be still come to an end."""

from dataclasses import replace

import numpy as np
import pytest
from mpi_world import Ranks

from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.analysis import analyze
from lib_dlhpc.timeline.analysis.calls import (
    ALL_FOR_ROOT,
    EACH_FOR_ALL,
    FREE,
    ROOT_FOR_ALL,
    calls,
    pattern_of,
)
from lib_dlhpc.timeline.analysis.late import mean_of_others, middle_of_others
from lib_dlhpc.timeline.spans import in_order


def exchange(steps=20):
    world = Ranks(4)
    for step in range(steps):
        world.compute([0.01, 0.01, 0.013, 0.01])
        world.shift(1000 * (step + 1))
        world.together()
    return world.trace()


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("MPI_Allreduce", EACH_FOR_ALL),
        ("MPI_Iallreduce", EACH_FOR_ALL),
        ("MPI_Alltoallw", EACH_FOR_ALL),
        ("MPI_Barrier", EACH_FOR_ALL),
        ("MPI_Reduce_scatter_block", EACH_FOR_ALL),
        ("MPI_Bcast", ALL_FOR_ROOT),
        ("MPI_Iscatterv", ALL_FOR_ROOT),
        ("MPI_Gatherv", ROOT_FOR_ALL),
        ("MPI_Reduce", ROOT_FOR_ALL),
        ("MPI_Scan", FREE),
        ("MPI_Exscan", FREE),
        ("solve", FREE),
        *(
            (name, EACH_FOR_ALL)
            for name in (  # PyTorch's, of NCCL and of gloo
                "all_reduce",
                "allreduce_coalesced",
                "_allgather_base",
                "all_gather",
                "_reduce_scatter_base",
                "allgather_into_tensor_coalesced",
                "reduce_scatter_tensor_coalesced",
                "all_to_allv",
                "barrier",
            )
        ),
        ("broadcast", FREE),  # it is not said from whom
    ],
)
def test_who_waits_for_whom_is_in_the_name_of_the_call(name, pattern):
    assert pattern_of(name) == pattern


def test_numbers_of_matches_may_have_gaps_and_any_order():
    trace = exchange()
    draw = np.random.default_rng(0).permutation(10**6)[: trace.match.max() + 1] * 10**9
    other = replace(trace, match=np.where(trace.match >= 0, draw[trace.match], -1))
    assert analyze(trace).findings == analyze(other).findings != []
    assert analyze(trace).efficiency == analyze(other).efficiency


def test_an_end_without_its_other_end_is_left_out():
    trace = exchange()
    lost = np.flatnonzero(trace.where("", "send"))[::2]
    part = trace.select(np.delete(np.arange(len(trace)), lost))
    assert len(calls(in_order(part)).sends) == len(calls(in_order(trace)).sends) // 2
    said = analyze(part)
    assert 0 < said.efficiency.parallel <= 1


@pytest.mark.parametrize("seed", range(5))
def test_clocks_that_disagree_make_no_trace_hang(seed):
    """Every rank's clock is off by up to a step: messages come before they are sent, and the like."""
    trace = exchange()
    off = np.random.default_rng(seed).uniform(-0.01, 0.01, 4)[trace.rank]
    said = analyze(replace(trace, start=trace.start + off, stop=trace.stop + off))
    shares = said.efficiency
    assert all(
        0 < part <= 1 for part in (shares.load_balance, shares.serialization, shares.transfer)
    )
    assert 0 < len(said.path) <= 2 * len(trace) + 1
    within = trace.where("", "receive")
    length = (trace.stop - trace.start)[within]
    calls_of = np.bincount(trace.rank[within], weights=length, minlength=4)
    assert (said.waits["late sender"] <= calls_of + 1e-12).all(), "no wait is longer than its call"


def test_calls_that_wait_for_each_other_come_to_an_end():
    """No program can make this trace: each receive needs a send that comes after it."""
    rows = []
    for rank in (0, 1):
        at = "communication"
        rows.append((rank, at, "receive", "MPI_Recv", 0.0, 1.0, 8, 1 - rank, 0, 1 - rank))
        rows.append((rank, at, "send", "MPI_Send", 1.0, 1.1, 8, 1 - rank, 0, rank))
    assert analyze(from_rows(rows, 2, "measured")).efficiency.ideal_seconds <= 1.1


def test_collectives_of_parts_of_the_ranks_are_reported_apart():
    """Two halves meet by themselves: who is late in one is not waited for in the other."""
    rows, at = [], "communication"
    for step in range(20):
        for rank in range(4):
            half, begin = rank // 2, 0.1 * step
            join = begin + 0.05 + 0.02 * (rank == 3)
            done = begin + (0.07 if half else 0.05) + 0.001
            number = 2 * step + half
            rows.append((rank, "compute", "region", "work", begin, join))
            rows.append(
                (rank, at, "collective", "MPI_Barrier", join, done, 0, -1, 1 + half, number)
            )
    said = analyze(from_rows(rows, 4, "measured"))
    np.testing.assert_allclose(said.waits["wait at collective"], [0, 0, 0.4, 0], atol=1e-12)
    (one,) = [finding for finding in said.findings if finding.kind == "wait at collective"]
    assert one.rank == 3 and one.seconds == pytest.approx(0.4)


def test_when_the_others_joined_in_the_middle_and_on_average():
    world, rng = Ranks(5), np.random.default_rng(0)
    for _ in range(20):
        world.compute(rng.uniform(0.0, 1.0, 5).tolist())
        world.together()
    found = calls(in_order(world.trace()))
    came = found.table.start[found.members]
    middle, mean = middle_of_others(found, came), mean_of_others(found, came)
    for group in range(found.groups):
        mine = np.flatnonzero(found.group == group)
        for member in mine:
            others = np.sort(came[mine[mine != member]])
            assert middle[member] == others[len(others) // 2]
            assert mean[member] == pytest.approx(others.mean())


def test_buckets_that_somebody_left_before_all_had_joined_are_no_exchange():
    """Pushes to a server have a name and a rank as well, and wait for nobody."""
    rows = [
        (rank, "communication", "communication", "push", 1.0 * rank, 1.0 * rank + 0.5, 100)
        for rank in range(3)
    ]
    assert len(calls(in_order(from_rows(rows, 3, "simulated"))).members) == 0
