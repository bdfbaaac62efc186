"""Plain data parallelism written out by itself, one bucket after another: what its program has to equal."""

import numpy as np

from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.device_work import device_work
from lib_dlhpc.costs.network import network_of
from lib_dlhpc.schedules.choice import plan
from lib_dlhpc.simulation import rounds


def ends(run, factor):
    """Return when each rank ends each step, s, (steps, ranks); factor: of the compute time, (steps, ranks)."""
    strategy, ranks = run.strategy, int(run.devices)
    assert run.strategy.precision == "fp32" and strategy.wire in ("same", "fp16")
    ratio, casts = (0.5, 2 * 1.5) if strategy.wire == "fp16" else (1.0, 0.0)  # 4 B read, 2 written
    memory = run.machine.device.memory_bandwidth
    work, network = device_work(run, 1.0), network_of(run)
    update = roofline.update_time(run.model, run.machine.device, strategy.optimizer)
    start, found = np.zeros(ranks), []
    for slow in factor:
        forward = start + slow * work.forward
        backward = free = forward + slow * work.backward
        free = start
        for size, ready in zip(work.sizes, work.ready, strict=True):
            joins = np.maximum(free, forward + slow * ready if run.overlap else backward)
            sent = ratio * size
            schedule = plan("allreduce", sent, network, ranks, name=strategy.allreduce)
            element = sent / schedule.elements
            joins = joins + casts / 2 * size / memory
            free = rounds.finish_times(schedule, network, element, joins)
            free = free + casts / 2 * size / memory
        start = np.maximum(backward, free) + slow * update
        found.append(start)
    return np.array(found)
