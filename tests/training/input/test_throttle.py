"""The throttle is the simulator's queue: the same times for the same requests; a cache holds what fits."""

import numpy as np
import pytest

from lib_dlhpc.costs.storage_reads import cached_share, limits, remote_share
from lib_dlhpc.simulation.storage import StoragePath
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.input.throttle import Throttle
from lib_dlhpc.training.single_rank import SingleRank

RUN = Experiment(
    model="mlp-digits",
    dataset={"name": "digits", "samples": 100, "bytes": "1 MB", "files": 100},
    machine={
        "name": "laptop",
        "nodes": 4,
        "devices_per_node": 1,
        "storage": {
            "far": {
                "scope": "shared",
                "bandwidth": "10 MB/s",
                "metadata_rate": "3 kop/s",
                "operation_latency": "2 ms",
                "read_latency": "5 ms",
                "reader_bandwidth": "5 MB/s",
                "read_rate": "2 kop/s",
            }
        },
    },
    storage={"tier": "far"},
    run={"epochs": 1},
)
COOPERATIVE = {"storage.access": "cooperative", "storage.local": "ssd", "strategy.nodes": 4}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"machine.storage.far.servers": "one"},
        {"storage.format": "packed"},
        {"storage.tier": "ssd"},
        {"machine.inter_node.bandwidth": 2e6},
    ],
)
def test_a_sample_comes_when_the_simulator_has_it(changes):
    run = RUN.set(changes)
    throttle, way = Throttle(run, 100, SingleRank()), StoragePath(run, 0)
    for sample, now in enumerate(
        np.cumsum(np.random.default_rng(2).exponential(1e-3, 30)).tolist()
    ):
        *_, until = way.stages(0, now)
        assert throttle.pass_through(sample, now)[1] == pytest.approx(until, abs=1e-12)


def test_requests_at_once_come_at_the_rate_of_the_slowest_limit():
    for changes in ({}, {"machine.storage.far.metadata_rate": 100.0}):
        run = RUN.set(changes)
        throttle = Throttle(run, 100, SingleRank())
        ends = [throttle.pass_through(sample, 0.0)[1] for sample in range(100)]
        rate = 99 / (ends[-1] - ends[0])
        slowest = max(seconds for seconds in limits(run).values())
        assert rate == pytest.approx(1 / slowest)


def test_ranks_that_read_the_same_samples_pay_for_each_once():
    alone, two = (Throttle(RUN, 100, SingleRank()) for _ in range(2))
    once = [alone.pass_through(sample, 0.0)[1] for sample in range(50)]
    both = [two.pass_through(sample, 0.0, 2)[1] for sample in range(50) for _ in range(2)]
    assert both[-1] == pytest.approx(once[-1], rel=0.01)


def test_the_cache_has_what_fits_and_its_samples_come_at_once():
    run = RUN.set({"storage.cache": 300e3})
    throttle = Throttle(run, 80, SingleRank())
    order = np.random.default_rng(0)
    hits = [
        sum(
            throttle.pass_through(sample, now)[1] == now
            for sample in order.permutation(80).tolist()
        )
        for now in (0.0, 100.0, 200.0)
    ]
    assert float(cached_share(run)) == pytest.approx(0.3)
    assert hits == [0, 24, 24]


def test_of_a_cooperative_store_the_predicted_share_is_on_other_nodes():
    for copies in (1, 2, 4):
        run = RUN.set({**COOPERATIVE, "storage.replication": copies})
        run = run.set({"machine.inter_node.latency": 1.0})
        throttle = Throttle(run, 100, SingleRank())
        far = [
            throttle.pass_through(sample, 1e3 * sample)[1] - 1e3 * sample > 1
            for sample in range(100)
        ]
        assert np.mean(far) == pytest.approx(float(remote_share(run)))
