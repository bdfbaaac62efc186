"""Accelerator utilization is that of MLPerf Storage's rule for DLIO's ResNet-50 workload, within 5 points.

AU = compute time over total time (MLPerf Storage, Submission_guidelines.md). The workload: 1,024 TFRecord files of
1,251 records of 114,660.07 B, batches of 400 a device, which computes for 0.224 s (H100) or 0.435 s (A100), 8 reader
threads (resnet50_h100.yaml, resnet50_a100.yaml). DLIO sleeps for the compute time; here a loop emulates it, without any
part of the library.
"""

import heapq

import pytest

from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.spec.experiment import Experiment

RECORD, BATCH, FILES, RECORDS, THREADS = 114660.07, 400, 1024, 1251, 8
COMPUTE = {"h100": 0.224, "a100": 0.435}
MACHINE = {"h100": "h100-pod", "a100": "perlmutter"}
STEPS = 1000


def utilization_by_dlio(bandwidth: float, devices: int, compute: float) -> float:
    """Threads of each device read batch after batch from one server; a device computes when its next one is there."""
    free, ends = 0.0, [0.0] * devices
    asked = [(0.0, device, batch) for batch in range(THREADS) for device in range(devices)]
    heapq.heapify(asked)
    ready: dict[tuple[int, int], float] = {}
    taken = [0] * devices
    while asked:
        now, device, batch = heapq.heappop(asked)
        free = max(free, now) + BATCH * RECORD / bandwidth
        ready[device, batch] = free
        while (came := ready.pop((device, taken[device]), None)) is not None:
            start = max(ends[device], came)
            ends[device], taken[device] = start + compute, taken[device] + 1
            if taken[device] + THREADS - 1 < STEPS:
                heapq.heappush(asked, (start, device, taken[device] + THREADS - 1))
    return STEPS * compute / max(ends)


def workload(accelerator: str, devices: int, bandwidth: float):
    return Experiment(
        model="resnet50",
        dataset={"samples": FILES * RECORDS, "bytes": FILES * RECORDS * RECORD, "files": FILES},
        machine={
            "name": MACHINE[accelerator],
            "jitter": 0.0,
            "storage": {"tier": {"scope": "shared", "bandwidth": bandwidth}},
        },
        strategy={"nodes": 1, "devices_per_node": devices, "batch": BATCH},
        storage={"tier": "tier", "format": "packed"},
        calibration={"rate": BATCH / COMPUTE[accelerator]},
    )


@pytest.mark.parametrize("accelerator", COMPUTE)
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("enough", [0.5, 0.85, 1.0, 1.2])
def test_utilization_is_that_of_dlio(accelerator, devices, enough):
    compute = COMPUTE[accelerator]
    bandwidth = enough * devices * BATCH * RECORD / compute
    run = workload(accelerator, devices, bandwidth)
    rule = utilization_by_dlio(bandwidth, devices, compute)
    predicted = compute / float(predict(run).step_time)
    terms = measure(run, simulate(run, steps=40)).terms
    simulated = compute / sum(terms.values())
    assert rule == pytest.approx(min(enough, 1.0), abs=0.02)
    assert predicted == pytest.approx(rule, abs=0.05)
    assert simulated == pytest.approx(rule, abs=0.05)
    assert (predicted >= 0.9) == (rule >= 0.9)  # the mark of a valid submission
