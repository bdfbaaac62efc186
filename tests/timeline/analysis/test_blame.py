"""The law of blame: nobody is charged for more than it came later, by its own doing, than the one that waits."""

import numpy as np
import pytest
from mpi_world import Ranks

from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.analysis import analyze

STEPS, WORK, MUCH = 40, 0.01, 0.085  # s of computation in a step, and of a long delay
AT = "communication"


def at_collectives(trace):
    """Seconds that each rank is charged with at collectives."""
    charged = {}
    for finding in analyze(trace).findings:
        if finding.kind == "wait at collective":
            charged[finding.rank] = charged.get(finding.rank, 0.0) + finding.seconds
    return charged


@pytest.mark.parametrize("own", [0.0, 0.01])
def test_who_was_kept_waiting_is_charged_with_its_own_lag_alone(own):
    """Rank 2 sends 85 ms late, and makes up for it; rank 1 got it late, works on, and is last at the collective."""
    world = Ranks(4)
    for _ in range(STEPS):
        world.compute(WORK)
        world.compute(MUCH, 2)
        world.message(2, 1, 1000)
        for rank in (0, 1, 3):
            world.compute(MUCH, rank)
        world.compute(own, 1)
        world.together()
    said = analyze(world.trace())
    assert said.waits["wait at collective"][0] == pytest.approx(STEPS * (MUCH + own), rel=0.01)
    assert at_collectives(world.trace()) == (
        {1: pytest.approx(STEPS * own, rel=0.01)} if own else {}
    )


@pytest.mark.parametrize("own", [0.0, 0.01])
@pytest.mark.parametrize("name", ["MPI_Allreduce", "MPI_Bcast", "MPI_Reduce"])
def test_a_wait_at_a_collective_of_some_ranks_is_no_doing_of_who_waited_there(name, own):
    """Rank 2 is 85 ms late for what it has with rank 1 alone; then rank 1 is late for what all have."""
    rows = []
    for step in range(STEPS):
        begin = 0.2 * step
        late, done = begin + WORK + MUCH, begin + WORK + MUCH + own + 2e-4
        joined = {0: begin + WORK, 1: late + own + 1e-4, 2: begin + WORK + MUCH + 1e-4}
        root = {"MPI_Bcast": 2, "MPI_Reduce": 1}.get(name, -1)
        for rank, came in ((1, begin + WORK), (2, late)):
            rows.append((rank, AT, "collective", name, came, late + 1e-4, 8, root, 1, 2 * step))
        for rank, came in joined.items():
            row = (rank, AT, "collective", "MPI_Barrier", came, done, 0, -1, 0, 2 * step + 1)
            rows.append(row)
    found = analyze(from_rows(rows, 3, "measured")).findings
    charged = {
        (one.rank, one.where.name): one.seconds for one in found if one.kind == "wait at collective"
    }
    assert charged.pop((2, name)) == pytest.approx(STEPS * MUCH, rel=0.01)
    # Of all that rank 0 waits at the barrier, 85 ms a step are the doing of rank 2; the rest is rank 1's.
    assert charged.pop((2, "MPI_Barrier"), 0.0) <= STEPS * MUCH * 1.01
    assert charged.pop((1, "MPI_Barrier"), 0.0) <= STEPS * own * 1.01
    assert charged == {}


def test_a_wait_for_a_root_counts_until_the_root_lets_all_go_on():
    """Rank 3 keeps the root waiting, the root keeps all others waiting: it is rank 3's doing in every step."""
    world = Ranks(4)
    for _ in range(STEPS):
        world.compute(WORK)
        world.compute(MUCH, 3)
        world.together("MPI_Reduce", root=0)
        world.together("MPI_Bcast", root=0)
    charged = at_collectives(world.trace())
    assert charged == {3: pytest.approx(STEPS * MUCH, rel=0.01)}

    world = Ranks(4)
    for _ in range(STEPS):
        world.compute(WORK)
        world.compute(0.002, 3)
        world.together("MPI_Reduce", root=0)
        world.compute(MUCH, 0)
        world.together("MPI_Bcast", root=0)
    charged = at_collectives(world.trace())
    assert charged[0] == pytest.approx(STEPS * MUCH, rel=0.05)


@pytest.mark.parametrize("seed", range(12))
def test_no_rank_is_charged_for_more_than_it_computes_longer_than_others(seed):
    """Any mixture of messages and collectives of all; what a rank computes more than another is known."""
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(2, 6))
    world, allowed = Ranks(ranks), np.zeros(ranks)
    slow, lag = int(rng.integers(ranks)), rng.uniform(0.0, 0.01)
    kinds = rng.integers(0, 4, 6)
    for _ in range(STEPS):
        total = np.zeros(ranks)
        for kind in kinds:
            work = rng.normal(WORK, 1e-4, ranks)
            work[slow] += lag if kind == 0 else 0.0
            world.compute(work.tolist())
            total += work
            if kind == 1:
                world.shift(1000)
            elif kind == 2:
                world.message(0, ranks - 1, 1000, eager=bool(seed % 2))
            elif kind == 3:
                world.together()
                allowed += total - total.min()
                total[:] = 0.0
        world.together()
        allowed += total - total.min()
    charged = at_collectives(world.trace())
    assert all(seconds <= allowed[rank] + 1e-3 for rank, seconds in charged.items()), (
        charged,
        allowed,
    )


@pytest.mark.parametrize("row_first", [True, False])
def test_lags_of_messages_count_from_the_last_collective_of_both(row_first):
    """Rank 2 waits 85 ms for rank 1 in a collective of the two, then sends 5 ms late to rank 1, or to rank 0."""
    rows, own = [], 0.005
    for step in range(STEPS):
        begin = 0.2 * step
        late = begin + WORK + MUCH
        for rank, came in ((1, late), (2, begin + WORK)):
            what = (rank, AT, "collective", "MPI_Barrier", came, late, 0, -1, 1, 2 * step)
            rows.append(what)
        to, came = (1, late) if row_first else (0, begin + WORK)
        sent = late + own
        rows.append((2, AT, "send", "MPI_Send", sent, sent, 8, to, 0, 2 * step + 1))
        rows.append((to, AT, "receive", "MPI_Recv", came, sent, 8, 2, 0, 2 * step + 1))
    found = analyze(from_rows(rows, 3, "measured")).findings
    (one,) = [finding for finding in found if finding.kind == "late sender"]
    assert (one.rank, one.peer) == (2, to)
    assert one.seconds == pytest.approx(STEPS * own, rel=0.01)
