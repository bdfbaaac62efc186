"""The law of costs/power_limit.py on a whole run, which its tests compare with measured ones, and refit."""

from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.costs.power_limit import SHAPE, Shape, clock


class Limited(NamedTuple):
    """A device under a limit: its time over the time without one, and its mean power in W."""

    time: Any
    power: Any


def under_limit(
    limit: Any, power: Any, efficiency: Any, idle: Any, most: Any, shape: Shape = SHAPE
) -> Limited:
    """Return time and power under a limit, from the mean power without one.

    limit, power, idle, most: W, arrays that broadcast; most: the power that the device never exceeds, its TDP.
    efficiency: throughput over that of the workload's best batch on the device, 0 to 1. Source: the module's text.
    """
    mean = (power - idle) / (most - idle)
    busy = idle + (most - idle) * mean**shape.busy
    used = (power - idle) / (busy - idle)
    arithmetic = used * efficiency**shape.compute
    slowed = arithmetic / clock(limit, busy, idle, shape)
    time = 1 - arithmetic + slowed
    energy = (1 - used) * idle + (used - arithmetic + slowed) * np.minimum(limit, busy)
    return Limited(time, energy / time)


def between_batches(
    batch: Any, batches: tuple[float, float], times: tuple[float, float], watts: tuple[float, float]
) -> tuple[Any, Any]:
    """Return the time for a number of samples, in s, and the mean power, in W, of a batch between two measured ones.

    The squared time is linear in the squared number of steps, as of a part that depends on the samples and one that
    depends on the steps, neither hidden nor added in full; the power is linear in the throughput.
    """
    steps = [1 / b**2 for b in batches]
    weight = (1 / np.square(batch) - steps[0]) / (steps[1] - steps[0])
    time = np.sqrt((1 - weight) * times[0] ** 2 + weight * times[1] ** 2)
    if times[0] == times[1]:
        return time, np.full_like(time, sum(watts) / 2)
    share = (1 / time - 1 / times[0]) / (1 / times[1] - 1 / times[0])
    return time, watts[0] + share * (watts[1] - watts[0])
