"""Laws of readers: without queues and chance a run is as predicted; with them, batches ahead pay."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.costs.storage_reads import limits
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.storage.profile import slides_run
from lib_dlhpc.simulation import simulate

RUN = slides_run(nodes=2).set({"machine.jitter": 0.0})
FREE = {"machine.storage.lustre.metadata_rate": np.inf, "machine.storage.lustre.bandwidth": np.inf}
FREE_NETWORK = {"machine.inter_node.bandwidth": 1e22}
STEPS, WARM = 14, 8
# Constant input: period and prediction agree to rounding where readers share a batch evenly.
CONSTANT = [
    {"storage.decode": 0.001},
    {"storage.decode": 0.02},
    {"storage.decode": 0.02, "storage.prefetch": 1},
    {"storage.decode": 0.05, "storage.workers": 16, "storage.prefetch": 2},
    {"storage.decode": 1.0, "storage.workers": 0, "storage.prefetch": 1},
    {"storage.decode": 1.0, "storage.workers": 0, "storage.prefetch": 2},
    {"storage.decode": 1.0, "storage.workers": 0, "storage.prefetch": 5},
    {"storage.workers": 2, "machine.storage.lustre.read_latency": 0.01},
    {"storage.compression": 2.0, "storage.decompress": 1e7},
]


def starts(timeline, rank=0):
    return np.sort([row.start for row in timeline if row.rank == rank and row.kind == "forward"])


def fetches(timeline):
    return [row for row in timeline if row.stream == "input"]


def period(timeline):
    """Seconds of a step, once the batches that were ahead at first are used up."""
    found = starts(timeline)
    return (found[-1] - found[WARM]) / (len(found) - 1 - WARM)


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize("changes", CONSTANT)
def test_without_queues_and_chance_a_step_is_the_predicted_one(changes, fidelity):
    run = RUN.set({**FREE, **FREE_NETWORK, **changes})
    found = simulate(run, fidelity, steps=15)
    # A cycle of batches ahead takes as many steps as there are of them.
    ahead = max(int(run.storage.prefetch), 1)
    at = starts(found)
    step = (at[-1] - at[-1 - 5 * ahead]) / (5 * ahead) if ahead < 3 else (at[-1] - at[-6]) / 5
    assert step == pytest.approx(predict(run).step_time, rel=1e-9)


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_saturated_servers_give_their_rate_whoever_asks(prefetch, fidelity):
    """All 16 readers of two nodes wait for the same servers; within 1%."""
    run = RUN.set({"machine.storage.lustre.metadata_rate": 1000.0, "storage.prefetch": prefetch})
    expected = run.global_batch * limits(run)["metadata servers"]
    assert period(simulate(run, fidelity, steps=STEPS)) == pytest.approx(expected, rel=0.01)
    assert predict(run).step_time == pytest.approx(expected)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 8), st.integers(1, 4), st.floats(1e-4, 0.05), st.floats(1e3, 1e5), st.booleans()
)
def test_nobody_beats_the_bottleneck(workers, prefetch, decode, rate, packed):
    """Queues and odd numbers only add: what the closed form leaves out."""
    run = RUN.set(
        {
            "storage.workers": workers,
            "storage.prefetch": prefetch,
            "storage.decode": decode,
            "machine.storage.lustre.metadata_rate": rate,
            "storage.format": "packed" if packed else "files",
            "strategy.batch": 8,
        }
    )
    found = starts(simulate(run, steps=30))
    # What was ahead at the start may make up for `prefetch` steps.
    least = (30 - 1 - 2 * prefetch) * float(predict(run).step_time)
    assert found[-1] >= least * (1 - 1e-9)


def test_batches_further_ahead_smooth_what_varies():
    """Half of the samples in the cache: a step waits for the worst of its batches, or for their mean."""
    run = RUN.set({**FREE, "storage.cache": 70e9, "run.epochs": 1e6, "strategy.batch": 4})
    run = run.set({"machine.storage.lustre.read_latency": 0.1})
    ends = [
        starts(simulate(run.set({"storage.prefetch": ahead}), steps=60, seed=3))[-1]
        for ahead in (1, 2, 8, 0)
    ]
    assert ends[0] > 1.02 * ends[1] > 1.01 * ends[2] >= ends[3] * 0.999
    assert ends[1] > 1.2 * 59 * float(predict(run.set({"storage.prefetch": 2})).step_time)


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_rows_of_input_say_when_batches_come_and_no_step_begins_without_its_own(fidelity):
    run = RUN.set({"storage.decode": 0.02, "storage.prefetch": 2})
    found = simulate(run, fidelity, steps=5)
    fetched = fetches(found)
    for rank in range(found.ranks):
        mine = sorted((row.start, row.stop) for row in fetched if row.rank == rank)
        assert len(mine) == 5
        assert all(a[1] <= b[0] + 1e-12 for a, b in pairwise(mine))
        begin = starts(found, rank)
        assert all(begin[k + 1] >= mine[k][1] - 1e-12 for k in range(4))


def test_a_slow_store_shows_as_waiting_for_input():
    run = RUN.set({"storage.decode": 0.1})
    waits = [
        row for row in simulate(run, steps=3) if row.stream == "compute" and row.kind == "input"
    ]
    assert len(waits) == 3 * int(run.devices)
    assert not [
        row
        for row in simulate(RUN.set({**FREE, "storage.decode": 1e-4}), steps=3)
        if row.stream == "compute" and row.kind == "input"
    ]


def test_the_same_seed_gives_the_same_bytes():
    run = slides_run(nodes=2, access="cooperative")
    a, b, c = (simulate(run, steps=3, seed=seed) for seed in (1, 1, 2))
    assert (a.start == b.start).all() and (a.stop == b.stop).all()
    assert a.start.shape != c.start.shape or (a.stop != c.stop).any()


def test_who_says_nothing_of_readers_has_the_constant_time():
    run = RUN.set({"storage.workers": 0})
    fetch = fetches(simulate(run, steps=2))
    lasts = {round(row.stop - row.start, 12) for row in fetch}
    assert lasts == {round(float(predict(run).input_time), 12)}
