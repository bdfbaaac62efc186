"""Messages in flight as fluid flows: each has its max-min fair rate, which changes when others start or end.

A change is felt only by flows that are coupled to it: two flows are coupled where they share a link that
could not carry all of its flows at the rate that each of them would have alone. Only such a group gets
new rates, once an instant, however many flows start or end in it. A change costs as much as its group is
large: little in a collective, but m flows of m sizes into one link, ending one by one, cost m^2.

Source of the fluid model: Velho, Schnorr, Casanova & Legrand, "On the validity of flow-level TCP network
models for grid and cloud simulations" (2013).
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import cast

import simpy
from simpy.events import Event, Timeout

from lib_dlhpc.simulation.fairness import fair_rates

ROUNDING = 1e-12  # rates nearer than this are the same


class Flow:
    """Bytes on their way; `left` is what had not yet arrived at time `since`."""

    __slots__ = ("arrived", "left", "limit", "links", "rate", "since", "timer")

    def __init__(
        self, links: tuple[int, ...], size: float, limit: float, arrived: Callable[[], object]
    ) -> None:
        self.links, self.left, self.limit, self.arrived = links, size, limit, arrived
        self.rate = self.since = 0.0
        self.timer: Timeout | None = None


class Flows:
    """All flows on the links; `changed` holds those whose rates `settle` has to look at.

    sharing: False gives every flow the whole of its narrowest link, as if it were alone.
    work: how many flows have got a rate, the measure of what the simulation costs.
    """

    def __init__(
        self, env: simpy.Environment, capacity: Sequence[float], sharing: bool = True
    ) -> None:
        self.env, self.capacity, self.sharing = env, list(capacity), sharing
        self.enough = [room * (1 + 1e-9) for room in capacity]
        self.limits: dict[tuple[int, ...], float] = {}  # B/s of the narrowest link, by route
        self.on: list[dict[Flow, None]] = [{} for _ in capacity]  # in the order of their start
        self.wanted = [0.0] * len(self.capacity)  # B/s, if every flow on the link were alone
        self.changed: dict[Flow, None] = {}
        self.work = 0

    def start(self, links: tuple[int, ...], size: float, arrived: Callable[[], object]) -> None:
        """Send `size` bytes over the links, and call `arrived` when the last one has arrived."""
        limit = self.limits.get(links)
        if limit is None:
            limit = self.limits[links] = min(self.capacity[link] for link in links)
        flow = Flow(links, size, limit, arrived)
        coupled = False
        if self.sharing:
            wanted, enough = self.wanted, self.enough
            for link in links:
                self.on[link][flow] = None
                wanted[link] += limit
                if wanted[link] > enough[link]:
                    coupled = True
        if coupled:
            self.changed[flow] = None
        else:
            self._set(flow, flow.limit)

    def settle(self) -> None:
        """Give new rates to the groups of all flows that are in `changed`."""
        seeds, self.changed = self.changed, {}
        seen: set[Flow] = set()
        for seed in seeds:
            if seed not in seen:
                group = self._group(seed, seen)
                if len(group) == 1:
                    self._set(seed, seed.limit)
                else:
                    rates = fair_rates([flow.links for flow in group], self.capacity)
                    for flow, rate in zip(group, rates, strict=True):
                        self._set(flow, rate)

    def _group(self, seed: Flow, seen: set[Flow]) -> list[Flow]:
        """All flows coupled to `seed`, directly or through others; they are added to `seen`."""
        group, links = [seed], set()
        seen.add(seed)
        for flow in group:
            for link in flow.links:
                if link not in links and self.wanted[link] > self.enough[link]:
                    links.add(link)
                    news = [other for other in self.on[link] if other not in seen]
                    group += news
                    seen.update(news)
        return group

    def _set(self, flow: Flow, rate: float) -> None:
        self.work += 1
        now = self.env.now
        if flow.rate:
            if abs(rate - flow.rate) <= ROUNDING * rate:
                return
            flow.left = max(flow.left - flow.rate * (now - flow.since), 0.0)
        flow.rate, flow.since = rate, now
        if flow.left < inf:
            flow.timer = Timeout(self.env, flow.left / rate, flow)
            flow.timer.callbacks.append(self._over)

    def _over(self, timer: Event) -> None:
        flow = cast(Flow, timer.value)
        if flow.timer is not timer:  # the rate has changed since
            return
        flow.timer = None  # no cycle, so that nothing has to look for garbage
        if self.sharing:
            self.changed.pop(flow, None)
            wanted, enough = self.wanted, self.enough
            for link in flow.links:
                on = self.on[link]
                del on[flow]
                if wanted[link] > enough[link]:
                    self.changed.update(on)
                wanted[link] = wanted[link] - flow.limit if on else 0.0
        flow.arrived()
