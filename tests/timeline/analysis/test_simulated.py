"""What is planted in a simulation is found in its timeline; in a balanced one nothing is."""

import numpy as np
import pytest

from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.simulation import Traffic
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.timeline.analysis import analyze
from lib_dlhpc.timeline.analysis.report import limit

RING = loads("""
dataset = { name = "imagenet" }
model = { name = "resnet18" }
machine = { name = "lassen", nodes = 9 }
strategy = { nodes = 8, devices_per_node = 1, batch = 32, allreduce = "ring" }
""")
ALL = 10**6  # messages


@pytest.mark.parametrize("steps", [1, 4, 20])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"strategy.devices_per_node": 4},
        {"strategy.allreduce": "recursive_doubling"},
        {"strategy.update": "local", "strategy.local_steps": 2},
        {"strategy.update": "asynchronous", "strategy.servers": 1},
    ],
    ids=["ring", "two kinds of link", "doubling", "local", "asynchronous"],
)
def test_nothing_is_found_in_a_balanced_run(changes, seed, steps):
    noisy = RING.set({"machine.jitter": 0.05, **changes})
    assert analyze(simulate(noisy, "rounds", seed, steps)).findings == []
    if steps == 4 and not seed and "strategy.servers" not in changes:
        said = analyze(simulate(noisy, "events", seed, steps, messages=ALL))
        assert said.matrix.messages.any() and said.findings == []


@pytest.mark.parametrize("slow", [0.7, 0.9])
@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_a_slow_rank_is_found(fidelity, slow):
    speed = np.ones(8)
    speed[3] = slow
    noisy = RING.set({"machine.jitter": 0.02})
    uneven = analyze(simulate(noisy, fidelity, steps=12, speed=speed))
    even = analyze(simulate(noisy, fidelity, steps=12))
    (one,) = uneven.findings
    assert (one.kind, one.rank) == ("load imbalance", 3)
    more = uneven.compute[3] - even.compute[3]
    assert one.seconds == pytest.approx(more, rel=0.1)
    assert limit(uneven).startswith("Load imbalance limits this run") or slow == 0.9


def test_a_crowded_link_is_found():
    """Others' traffic takes half of the link from node 2 to node 3 all the time."""
    crowd = [Traffic(2, 3, float("inf"))]
    free, taken = (
        simulate(RING, "events", steps=4, messages=ALL, background=others) for others in ((), crowd)
    )
    (one,) = analyze(taken).findings
    assert (one.kind, one.rank, one.peer) == ("slow link", 2, 3)
    took = [
        (part.stop - part.start)[(part.rank == 2) & (part.peer == 3)].sum()
        for part in (free, taken)
    ]
    assert one.seconds == pytest.approx(took[1] - took[0], rel=0.1)
    assert analyze(free).findings == []


def test_a_slow_disk_is_found_even_where_it_is_hidden():
    """Rank 5 reads 20 ms longer than the others, half a step; or 60 ms, for which everybody waits."""
    for more, stalls in ((0.020, False), (0.060, True)):
        slow = simulate(RING, steps=20, input=lambda _, rank, more=more: 2e-3 + more * (rank == 5))
        said = analyze(slow)
        (one,) = said.findings
        assert (one.kind, one.rank) == ("slow disk", 5)
        assert one.seconds == pytest.approx(20 * more, rel=0.1)
        assert bool(said.stalled.any()) == stalls
        assert limit(said).startswith("Waiting for storage limits this run") == stalls
