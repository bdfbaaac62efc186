"""Max-min fair sharing: no flow can get more without taking from one that has less.

All rates rise together; when a link is full, the flows on it keep what they have and the others continue
(progressive filling; Bertsekas & Gallager, "Data Networks", 2nd ed. 1992, section 6.5.2). A link whose
fair share is the least on the whole route of each of its flows fills up first among those it could
ever hear of, so all such links are settled in one pass.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Capacity: TypeAlias = Sequence[float] | NDArray[Any]

FEW = 24  # flows below which plain Python is faster than numpy
SAME = 1 + 1e-12  # two shares that differ by rounding


def fair_rates(routes: Sequence[Sequence[int]], capacity: Capacity) -> list[float]:
    """Return the max-min fair rate of each flow, in the unit of `capacity`.

    routes: the links that each flow takes, at least one. capacity: of each link (links,), above 0.
    """
    if len(routes) <= FEW:
        return _few(routes, capacity)
    hops = [len(route) for route in routes]
    flow = np.repeat(np.arange(len(routes)), hops)
    link = np.fromiter((hop for route in routes for hop in route), np.int64, sum(hops))
    return fill(flow, link, capacity).tolist()


def fill(
    flow: NDArray[np.int64], link: NDArray[np.int64], capacity: Capacity
) -> NDArray[np.float64]:
    """Return the rates of flows 0, 1, 2 ...; `flow[i]` takes `link[i]`, one pair for each hop."""
    left = np.array(capacity, dtype=np.float64)
    rate = np.zeros(flow.max(initial=-1) + 1)
    while len(flow):
        users = np.bincount(link, minlength=len(left))
        share = left / np.maximum(users, 1)
        least_of_flow = np.full(len(rate), np.inf)
        np.minimum.at(least_of_flow, flow, share[link])
        least_of_link = np.full(len(left), np.inf)
        np.minimum.at(least_of_link, link, least_of_flow[flow])
        full = share <= least_of_link * SAME
        settled = np.zeros(len(rate), dtype=bool)
        settled[flow[full[link]]] = True
        rate[settled] = least_of_flow[settled]
        gone = settled[flow]
        left -= np.bincount(link[gone], weights=rate[flow[gone]], minlength=len(left))
        np.maximum(left, 0.0, out=left)
        flow, link = flow[~gone], link[~gone]
    return rate


def _few(routes: Sequence[Sequence[int]], capacity: Capacity) -> list[float]:
    """The same, one full link after another."""
    flows: dict[int, list[int]] = {}
    for flow, route in enumerate(routes):
        for link in route:
            flows.setdefault(link, []).append(flow)
    left = {link: float(capacity[link]) for link in flows}
    users = {link: len(on) for link, on in flows.items()}
    rate = [-1.0] * len(routes)
    while users:
        full = min(users, key=lambda link: left[link] / users[link])
        share = max(left[full] / users[full], 0.0)
        for flow in flows[full]:
            if rate[flow] < 0:
                rate[flow] = share
                for link in routes[flow]:
                    left[link] -= share
                    users[link] -= 1
                    if not users[link]:
                        del users[link]
    return rate
