"""Laws of sensitivity: a better part never hurts, and what a run waits for shows first."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc import Experiment
from lib_dlhpc.prediction import predict, sensitivity
from lib_dlhpc.prediction.changes.sensitivity import PARTS
from lib_dlhpc.spec.strategy import ALLREDUCES

RUN = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine="summit",
    strategy={"nodes": 64},
    storage={"tier": "nvme"},
)


@settings(max_examples=60)
@given(
    st.sampled_from(ALLREDUCES),
    st.booleans(),
    st.integers(1, 4000),
    st.integers(1, 512),
    st.sampled_from(["", "nvme", "gpfs"]),
    st.sampled_from([0.0, 50.0, 400.0]),
)
def test_twice_as_good_never_hurts_and_saves_at_most_half(
    allreduce, overlap, nodes, batch, tier, rate
):
    run = RUN.set(
        {
            "strategy.allreduce": allreduce,
            "strategy.overlap": overlap,
            "strategy.nodes": nodes,
            "strategy.batch": batch,
            "storage.tier": tier,
            "calibration.rate": rate,
        }
    )
    found = sensitivity(predict(run))
    assert set(found) == {part for part in PARTS if tier or "storage" not in PARTS[part][0]}
    for part, shorter in found.items():
        assert -1e-12 <= shorter <= 0.5 + 1e-12, part


def test_a_measured_rate_does_not_hide_the_compute_rate():
    run = RUN.set({"calibration.rate": 300.0, "strategy.batch": 256})
    found = sensitivity(predict(run))
    assert max(found, key=found.__getitem__) == "compute rate" and found["compute rate"] > 0.3


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"strategy.batch": 512}, "compute rate"),
        ({"machine.inter_node.bandwidth": 1e7}, "network bandwidth"),
        ({"machine.inter_node.latency": 0.1}, "network latency"),
        ({"machine.intra_node.bandwidth": 1e7}, "links inside the node"),
        ({"machine.device.memory_bandwidth": 1e9}, "memory bandwidth"),
        ({"machine.device.launch": 0.1}, "kernel launch"),
        ({"machine.storage.nvme.bandwidth": 1e5}, "storage bandwidth"),
        ({"machine.storage.nvme.metadata_rate": 10.0}, "metadata rate"),
    ],
)
def test_the_bottleneck_comes_first(changes, part):
    found = sensitivity(predict(RUN.set(changes)))
    assert max(found, key=found.__getitem__) == part
    assert found[part] > 0.25


def test_a_tier_may_be_called_anything():
    tier = {"bandwidth": 1e5, "scope": "node"}
    for name in ("tier", "machine", "bandwidth"):
        run = RUN.set({f"machine.storage.{name}": tier, "storage.tier": name})
        assert sensitivity(predict(run))["storage bandwidth"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("changes", "best"),
    [
        ({"storage.workers": 1, "storage.decode": 0.5}, "readers per device"),
        ({"storage.prefetch": 1, "machine.storage.nvme.read_latency": 2.0}, "batches ahead"),
        (  # half of it is worth as much as twice the readers, where they do nothing but wait
            {
                "storage.workers": 3,
                "machine.storage.nvme.operation_latency": 2.0,
                "machine.storage.nvme.reader_bandwidth": math.inf,
            },
            "storage latency",
        ),
        (
            {
                "storage.access": "cooperative",
                "storage.local": "nvme",
                "storage.tier": "gpfs",
                "machine.storage.nvme.bandwidth": 1e6,
            },
            "storage bandwidth",
        ),
    ],
)
def test_a_run_that_waits_for_its_readers_is_reported_what_helps(changes, best):
    found = sensitivity(predict(RUN.set(changes)))
    assert max(found.values()) == pytest.approx(found[best])
    assert found[best] > 0.4
    assert ("readers per device" in found) == bool(
        {"storage.workers", "storage.prefetch"} & {*changes}
    )
