"""Cache simulation: hits of each epoch by eviction policy.

One node's reads, epoch after epoch, each a fresh random order. A sample is kept when it has been read; when
there is no room, the policy names the one to drop. "keep" drops nothing: what came first stays. "belady"
drops what is read again last, so it must know the future (Belady 1966); it may also drop what just came.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from lib_dlhpc.errors import SpecError, listed

Orders = Sequence[Sequence[int]]


def hit_rates(policy: str, orders: Orders, room: int) -> list[float]:
    """Return the share of hits in each epoch of `orders` (sample numbers) for a cache of `room` samples.

    Raises SpecError for a policy that is none of POLICIES, and for a room below 0.
    """
    if policy not in POLICIES:
        raise SpecError(listed(f"policy = {policy!r}:", policy, POLICIES, "expected one of"))
    if room < 0:
        raise SpecError(f"room = {room}: expected a number of samples, at least 0.")
    hits = POLICIES[policy](orders, room) if room else [0 for _ in orders]
    return [hit / max(len(order), 1) for hit, order in zip(hits, orders, strict=True)]


def orders(
    samples: int, epochs: int, nodes: int = 1, seed: int = 0, shuffle: bool = True
) -> list[list[int]]:
    """Return what one of `nodes` nodes reads in each epoch: its part of a fresh random order of all samples.

    Without `shuffle` every epoch has the same order.
    """
    random, part = np.random.default_rng(seed), samples // nodes
    drawn = [random.permutation(samples) if shuffle else np.arange(samples) for _ in range(epochs)]
    return [order[:part].tolist() for order in drawn]


def _least_recent(orders: Orders, room: int, moved: bool = True) -> list[int]:
    """Drop what was read longest ago; or, unless hits are `moved` to the end, what was kept longest."""
    cached: OrderedDict[int, None] = OrderedDict()
    hits = []
    for order in orders:
        hits.append(0)
        for sample in order:
            if sample in cached:
                hits[-1] += 1
                if moved:
                    cached.move_to_end(sample)
                continue
            if len(cached) == room:
                cached.popitem(last=False)
            cached[sample] = None
    return hits


def _first_in(orders: Orders, room: int) -> list[int]:
    return _least_recent(orders, room, moved=False)


def _clock(orders: Orders, room: int) -> list[int]:
    """Go round and drop the first that has not been read since the last time round."""
    cached: OrderedDict[int, bool] = OrderedDict()
    hits = []
    for order in orders:
        hits.append(0)
        for sample in order:
            if sample in cached:
                hits[-1] += 1
                cached[sample] = True
                continue
            while len(cached) == room:
                first, read_again = cached.popitem(last=False)
                if read_again:
                    cached[first] = False
            cached[sample] = False
    return hits


def _at_random(orders: Orders, room: int) -> list[int]:
    random, slots, slot_of = np.random.default_rng(0), list[int](), dict[int, int]()
    hits = []
    for order in orders:
        hits.append(0)
        for sample, slot in zip(
            order, random.integers(room, size=len(order)).tolist(), strict=True
        ):
            if sample in slot_of:
                hits[-1] += 1
            elif len(slots) < room:
                slot_of[sample] = len(slots)
                slots.append(sample)
            else:
                del slot_of[slots[slot]]
                slot_of[sample], slots[slot] = slot, sample
    return hits


def _keep(orders: Orders, room: int) -> list[int]:
    cached: set[int] = set()
    hits = []
    for order in orders:
        hits.append(sum(sample in cached for sample in order))
        for sample in order:
            if len(cached) < room:
                cached.add(sample)
    return hits


def _belady(orders: Orders, room: int) -> list[int]:
    """Drop what is read again last, or never; what just came included."""
    from heapq import heappop, heappush

    flat = [sample for order in orders for sample in order]
    again, last = [len(flat)] * len(flat), dict[int, int]()
    for time in range(len(flat) - 1, -1, -1):
        again[time] = last.get(flat[time], len(flat))
        last[flat[time]] = time
    cached: dict[int, int] = {}  # sample -> when it is read again
    latest: list[tuple[int, int]] = []
    hits, time = [], 0
    for order in orders:
        hits.append(0)
        for sample in order:
            hits[-1] += sample in cached
            cached[sample] = again[time]
            heappush(latest, (-again[time], sample))
            while len(cached) > room:
                when, dropped = heappop(latest)
                if cached.get(dropped) == -when:
                    del cached[dropped]
            time += 1
    return hits


POLICIES: dict[str, Callable[[Orders, int], list[int]]] = {
    "keep": _keep,
    "lru": _least_recent,
    "fifo": _first_in,
    "clock": _clock,
    "random": _at_random,
    "belady": _belady,
}
