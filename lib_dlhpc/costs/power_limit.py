"""What a power limit does to a device: its power and its time, from a measurement without a limit.

A device that trains alternates between being busy, at P_b, and waiting, at idle power. A limit L below P_b lowers the
clock, to phi = f / f_max. Of the busy power a static part P_s remains at any clock; the rest grows with phi^4,
as voltage falls with the clock:

    L = P_s + (P_b - P_s) phi^4,    P_s = idle + static (P_b - idle)

Only arithmetic is slowed, by 1 / phi. Memory, links, launches and the host are not slowed. How much of the time is
arithmetic is not measured; it is what a batch that uses the device well is, c = u e^compute, with u the fraction of the
time that the device is busy and e its throughput over that of the best batch. u follows from the mean power: with
x = (P - idle) / (most - idle), the busy power is idle + (most - idle) x^busy. With t = T / T_0:

    t = 1 - c + c / phi,    energy / T_0 = (1 - u) idle + (u - c + c / phi) min(L, P_b)

The four exponents and fractions are fitted to 766 measured rows, two GPUs and six workloads under limits of 100 W to
250 W: You et al. 2023, "Zeus", NSDI (`tests/data/power_limits.csv`); tests refit them with each workload left out.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.spec.machine import Device

LOWEST_CLOCK = 0.25  # of the highest: devices do not clock lower under a limit


class Shape(NamedTuple):
    """How power depends on use and on the clock: the fitted numbers, without unit."""

    busy: float = 0.63  # exponent of the mean power that gives the busy power
    static: float = 0.3  # fraction of the busy power above idle that no clock lowers
    clock: float = 0.25  # exponent of the power above the static part that gives the clock
    compute: float = 1.6  # exponent of the relative throughput that gives the arithmetic


SHAPE = Shape()


# Power of a device by what it does, as a fraction of what lies between idle and busy power. Estimates: streaming
# kernels draw 50 to 70% of a GPU's limit, ranks that poll in a collective 100 to 200 W of 400 W.
ARITHMETIC, MEMORY, EXCHANGE = 1.0, 0.6, 0.3


def clock(limit: Any, busy: Any, idle: Any, shape: Shape = SHAPE) -> Any:
    """Return the clock under a power limit over the highest, 0.25 to 1.

    limit, busy, idle: W, arrays that broadcast; busy: what the device draws without a limit. No limit is infinite.
    """
    static = idle + shape.static * (busy - idle)
    above = np.minimum(limit, busy) - static
    whole = np.where(np.greater(busy, static), busy - static, 1.0)
    relative = np.where(np.greater(busy, static), np.maximum(above, 0.0) / whole, 1.0)
    return np.maximum(relative**shape.clock, LOWEST_CLOCK)[()]


def clocked(device: Device, limit: Any) -> Device:
    """Return the device with the rates of arithmetic that it has under a power limit in W; 0: no limit."""
    if not np.any(limit):
        return device
    unlimited = np.where(np.equal(limit, 0), np.inf, limit)
    return slowed(device, clock(unlimited, device.busy_power, device.idle_power))


def slowed(device: Device, slower: Any) -> Device:
    """Return the device with this part of its rates of arithmetic."""
    if np.all(np.equal(slower, 1.0)):
        return device
    layers = {
        kind: replace(rate, rate=rate.rate * slower, backward_rate=rate.backward_rate * slower)
        for kind, rate in device.layers.items()
    }
    shares = ("efficiency", "fp8_efficiency", "attention")
    return replace(device, layers=layers, **{x: getattr(device, x) * slower for x in shares})


def drawn(
    device: Device, limit: Any, arithmetic: Any, memory: Any = 0.0, exchange: Any = 0.0
) -> Any:
    """Return the mean W of a device that does each for a fraction of the time, and waits in the rest.

    limit: W, 0: none. No activity draws more than the limit, or than arithmetic at the lowest clock, if that is more.
    """
    dynamic = device.busy_power - device.idle_power
    static = SHAPE.static * dynamic
    lowest = device.idle_power + static + (dynamic - static) * LOWEST_CLOCK ** (1 / SHAPE.clock)
    most = np.where(np.equal(limit, 0), np.inf, np.maximum(limit, lowest))
    watts = device.idle_power
    for fraction, level in ((arithmetic, ARITHMETIC), (memory, MEMORY), (exchange, EXCHANGE)):
        watts = watts + fraction * (
            np.minimum(most, device.idle_power + level * dynamic) - device.idle_power
        )
    return watts
