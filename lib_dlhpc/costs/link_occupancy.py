"""For how long a collective keeps links busy: those of its devices, the NICs of its nodes, and what switches share.

Each is the bandwidth term of the same algorithm on a network whose other links are infinitely fast. So an exchange that
an oversubscribed switch slows down fourfold keeps its NICs busy for a quarter of its time.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.costs import groups
from lib_dlhpc.costs.network import Cost, Network
from lib_dlhpc.schedules.choice import chosen
from lib_dlhpc.schedules.network import Level

SHARED = 1 + 1e-9  # times as long, by which switches slow an exchange down, beyond rounding


class Busy(NamedTuple):
    """Seconds for which an exchange keeps the links of each kind busy."""

    devices: Any
    nics: Any
    switches: Any  # 0 where these are as fast as the NICs


def busy_links(goal: str, size: float, net: Network, algorithm: str) -> Busy:
    """Return how long a collective of `size` B keeps links busy; goal: also "halo" and a shift along a ring.

    Of groups that do not fill nodes evenly the NICs are taken to be what limits them, if any leave a node.
    """
    cost = pricing(goal, size, net, algorithm)
    if net.uneven is not None:
        seconds = float(cost(net).bandwidth)
        return Busy(seconds, 0.0, 0.0) if net.uneven.is_inside else Busy(0.0, seconds, 0.0)
    inner, outer = net.inner, net.outer
    inside = net._replace(outer=Level(outer.ranks, 0.0, 0.0))
    between = net._replace(inner=Level(inner.ranks, 0.0, 0.0))
    free = between._replace(
        congestion=_no_congestion,
        all_to_all=1.0,
        neighbors=_no_congestion,
        crossing=0.0,
        trees=_no_congestion,
    )
    devices, nics, switches = (float(cost(on).bandwidth) for on in (inside, free, between))
    return Busy(devices, nics, switches if switches > SHARED * nics else 0.0)


def _no_congestion(*_: Any, **__: Any) -> float:
    return 1.0


def pricing(goal: str, size: float, net: Network, algorithm: str) -> Callable[[Network], Cost]:
    """Return what prices the algorithm for `net` on this or another network; goal: as of `busy_links`."""
    if goal == "halo":
        return partial(groups.halo_cost, size=size)
    if goal == "shift":
        return partial(groups.shift_cost, size=size)
    if goal == "all_to_all":
        size = size * int(np.max(net.inner.ranks * net.outer.ranks))
    return partial(chosen(goal, size, net, algorithm).priced, size)
