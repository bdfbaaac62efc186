"""Groups that do not fill nodes evenly, priced on the links that their ranks really use.

Three tensor ranks on nodes of eight devices: groups 0-2 and 3-5 are inside a node, ranks 6 and 7 have their third one
in the next node. A step waits for the slowest group of a stage, so all of that stage have its price. A schedule is
walked round by round with all groups at once: a round takes as long as the busiest rank of the stage, which waits for
all that its links carry meanwhile. Placement repeats where a group begins at the edge of a node, or of a switch if its
links are shared, so groups are walked up to there.

Not modeled: ranks that run ahead into the next round. Source of the rounds' arithmetic: schedules/price.py.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from math import gcd, lcm
from typing import Any

import numpy as np

from lib_dlhpc.arrays import Floats, Ints
from lib_dlhpc.costs.platform import NO_LINK, platform
from lib_dlhpc.costs.switch_contention import ALL, NodeRange, parts_of, shares_links
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.algorithms import schedule
from lib_dlhpc.schedules.choice import even_elements
from lib_dlhpc.schedules.network import Cost
from lib_dlhpc.schedules.rounds import MULTICAST, STREAM, Round, as_sent, messages
from lib_dlhpc.spec.machine import RAILS, Machine

Rows = list[tuple[int, Floats]]  # how often, and who may be the busiest: see `_busiest`


def is_even(devices: int, nodes: int, ranks: int, rank_stride: int) -> bool:
    """Whether groups of `ranks` ranks at a distance of `apart` have equally many on each node that they are on."""
    if nodes == 1 or ranks <= 1 or rank_stride >= devices:
        return True
    if ranks * rank_stride <= devices:
        return devices % (ranks * rank_stride) == 0
    return devices % rank_stride == 0 and ranks * rank_stride % devices == 0


def is_placed(machine: Machine, devices: int, nodes: int, ranks: int, rank_stride: int) -> bool:
    """Whether groups are even, and where links between switches or NICs matter, on devices of one place in a node."""
    if not is_even(devices, nodes, ranks, rank_stride):
        return False
    alike = nodes == 1 or ranks <= 1 or rank_stride <= devices or rank_stride % devices == 0
    return alike or not (shares_links(machine) or machine.topology in RAILS)


class UnevenGroups:
    """The groups of `ranks` ranks at a distance of `apart` on `nodes` nodes of `devices` ranks, domains joined.

    own: the ranks of those that count.
    """

    def __init__(
        self,
        machine: Machine,
        devices: int,
        nodes: int,
        ranks: int,
        apart: int,
        own: NodeRange = ALL,
    ) -> None:
        block, period = ranks * apart, devices
        if shares_links(machine):
            period *= nodes if machine.topology == "torus" else int(machine.nodes_per_switch)
        total = len(own.beside) * own.many or min(lcm(block, period), devices * nodes)
        many = max(1, total // block)
        first = np.arange(many)[:, np.newaxis] * block + np.arange(apart)
        self._machine, self._nodes, self._devices, self.ranks = machine, nodes, devices, ranks
        self.members: Ints = first.reshape(-1, 1) + np.arange(ranks) * apart  # (groups, ranks)
        sent, counts = parts_of(own, block, many)
        self._sent, self._counts = np.repeat(sent, apart), np.repeat(counts, apart)  # of each group
        self._known: dict[tuple[str, str], Rows] = {}

    @cached_property
    def node_size(self) -> int:
        """The most ranks of which each row, 0 to g - 1, g to 2 g - 1 ..., is inside a node in all groups."""
        nodes = self.members // self._devices
        _, cut = np.nonzero(np.diff(nodes, axis=1))
        return gcd(self.ranks, *(np.unique(cut) + 1).tolist())

    @cached_property
    def is_inside(self) -> bool:
        """Whether all groups that count are inside a node."""
        nodes = self.members[self._counts] // self._devices
        return not np.diff(nodes, axis=1).any()

    def priced(self, record: Algorithm, n: Any) -> Cost:
        """Return the cost of n bytes by an algorithm; arrays of n give arrays."""
        key = record.goal, record.name
        if key not in self._known:
            count = even_elements(record.goal, self.ranks)
            made = schedule(
                record.name, self.ranks, count, **record.on_nodes(self.ranks, self.node_size)
            )
            self._known[key] = self._walked(map(as_sent, made.rounds()), count)
        return _sum(self._known[key], n)

    def shift(self, size: Any) -> Cost:
        """Return the cost of a message of `size` B from each rank to the next, the last sends to the first."""
        rank = np.arange(self.ranks)
        return self._once("shift", messages(rank, (rank + 1) % self.ranks, 0, 1, False), 1, size)

    def halo(self, size: Any) -> Cost:
        """Return the cost of a halo: `size` B from each rank to its neighbors, half to each if there are two."""
        low, high = np.arange(self.ranks - 1), np.arange(1, self.ranks)
        both = messages(np.append(low, high), np.append(high, low), 0, 1, False)
        return self._once("halo", both, 1 if self.ranks == 2 else 2, size)

    def _once(self, name: str, part: Round, elements: int, size: Any) -> Cost:
        if (name, "") not in self._known:
            self._known[name, ""] = [(1, _largest(self._at_once(part, elements)))]
        return _sum(self._known[name, ""], size)

    @cached_property
    def _on(self) -> Any:
        nodes = -(-int(self.members.max() + 1) // self._devices)
        if self._machine.topology == "torus":
            nodes = self._nodes
        return platform(self._machine, nodes, self._devices)

    def _walked(self, rounds: Iterator[Round], elements: int) -> Rows:
        """Return what each round takes; equal ones are one."""
        alike = Counter[tuple[Any, ...]]()
        parts = dict[tuple[Any, ...], Round]()
        for part in rounds:
            if len(part):
                columns = part.source, part.target, part.count, part.reduce
                key = (part.switch, *(column.tobytes() for column in columns))
                alike[key] += 1
                parts.setdefault(key, part)
        counts, kept = Counter[bytes](), dict[bytes, Floats]()
        for key, part in parts.items():
            walk = self._at_once if part.switch else self._busiest
            rows = _largest(walk(part, elements))
            counts[rows.tobytes()] += alike[key]
            kept[rows.tobytes()] = rows
        return [(times, kept[key]) for key, times in counts.items()]

    def _placed(self, part: Round, elements: int) -> tuple[Ints, Ints, Floats, Ints, Floats]:
        """Return sources, targets and parts of the buffer of all groups' messages, their links and latencies."""
        source, target = (self.members[:, ranks].ravel() for ranks in (part.source, part.target))
        share = np.outer(self._sent, part.count / elements).ravel()
        return source, target, share, *self._on.routes(source, target)

    def _carried(self, links: Ints, share: Floats) -> tuple[Floats, Floats]:
        """Return for each message s/B of its slowest link alone, and of the one that carries most for all messages."""
        used, capacity = links != NO_LINK, self._on.capacity
        shares = np.broadcast_to(share[:, np.newaxis], links.shape)
        load = np.bincount(links[used], weights=shares[used], minlength=len(capacity)) / capacity
        alone = np.where(used, shares / capacity[links], 0.0)
        return alone.max(axis=1), np.where(used, load[links], 0.0).max(axis=1)

    def _busiest(self, part: Round, elements: int) -> Floats:
        """Return (latency in s, transfer and reduction in s/B) of each rank's ports, (ports, 3)."""
        source, target, share, links, latency = self._placed(part, elements)
        alone, shared = self._carried(links, share)
        size = self._on.ranks
        combined = np.tile(part.reduce, len(self.members)) * share
        reduction = np.bincount(target, combined, size) * self._on.gamma
        costs, members = [], self.members[self._counts].ravel()
        for port in (source, target):
            most = np.zeros(size)
            np.maximum.at(most, port, shared)
            moved = np.maximum(np.bincount(port, alone, size), most)
            loads = np.stack([np.bincount(port, latency, size), moved, reduction], axis=1)
            costs.append(loads[members])
        return np.concatenate(costs)

    def _at_once(self, part: Round, elements: int) -> Floats:
        """Return the same for messages that do not wait for each other; a switch merges those of a port."""
        _, _, share, links, latency = self._placed(part, elements)
        if part.switch:
            ends = links[:, ::-1] if part.switch == MULTICAST else links
            near = np.argmax(ends != NO_LINK, axis=1)[:, np.newaxis]
            links = np.take_along_axis(ends, near, axis=1)
        _, shared = self._carried(links, share)
        if part.switch == STREAM and not part.reduce.any():
            shared = np.zeros_like(shared)
        loads = np.stack([latency, shared, np.zeros_like(shared)], axis=1)
        return loads[np.repeat(self._counts, len(part))]


def _largest(rows: Floats) -> Floats:
    """Return the rows that are the largest for some size: each longer in latency has less to move and to combine."""
    rows = np.unique(rows, axis=0)
    slope = rows[:, 1] + rows[:, 2]
    rows = rows[np.lexsort((-slope, -rows[:, 0]))]
    slope = rows[:, 1] + rows[:, 2]
    before = np.append(-1.0, np.maximum.accumulate(slope)[:-1])
    return rows[slope > before]


def _sum(rows: Rows, n: Any) -> Cost:
    """Return the cost of all rounds for n bytes, in each of which the busiest rank counts."""
    size = np.asarray(n, np.float64)
    total = np.zeros((3, *size.shape))
    for times, row in rows:
        latency, moved, combined = row.T
        best = np.argmax(latency + size[..., np.newaxis] * (moved + combined), axis=-1)
        total += times * np.stack([latency[best], size * moved[best], size * combined[best]])
    return Cost(*(total if size.ndim else total.tolist()))
