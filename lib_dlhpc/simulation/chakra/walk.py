"""An execution trace simulated: every node starts once those that it depends on are done, in the order of time.

    a computation    a rank has one device, and one host: who is ready first is computed first
    a collective     starts when all its ranks have joined, ends for all at once; those of a group follow one another
    a message        occupies the sender's port for its bytes, behind those sent before, and arrives latency later;
                     the send is done then, and so is a receive that was posted before
    load and store   start at once

Messages and collectives do not contend with each other: prices.py has what they share. This is the arithmetic of
program/rank_path.py, node by node.
"""

from collections import defaultdict
from heapq import heappop, heappush

from lib_dlhpc.errors import SpecError
from lib_dlhpc.simulation.chakra.joined import Joined, joined
from lib_dlhpc.simulation.chakra.prices import Prices
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.timeline import Event, Timeline, from_rows
from lib_dlhpc.timeline.chakra import Trace
from lib_dlhpc.timeline.measure import WORK


def simulate_trace(trace: Trace, machine: Machine, devices_per_node: int = 0) -> Timeline:
    """Return what every rank of a trace does on a machine, and when; ranks are placed on nodes in order.

    devices_per_node: ranks on each node; by default, one on each device. Rows of stream compute are computations, and
    waits between them; of stream communication: a collective from joining to its end, a message in flight at both
    ends. Raises SpecError, which names file and node, for a trace that does not fit together, or the machine.
    """
    each = devices_per_node or machine.devices_per_node
    if not 1 <= each <= machine.devices_per_node:
        raise SpecError(f"devices_per_node = {each}; legal: 1 to {machine.devices_per_node}.")
    if -(-trace.ranks // each) > machine.nodes:
        raise SpecError(
            f"{trace.ranks} ranks, {each} on each node, need {-(-trace.ranks // each)} nodes;"
            f" {machine.name or 'the machine'} has {machine.nodes}."
        )
    walk = _Walk(trace, joined(trace), Prices(machine, trace.ranks, each))
    walk.run()
    return from_rows(walk.rows, trace.ranks, "simulated").sorted()


class _Walk:
    """The clocks of a simulation."""

    def __init__(self, trace: Trace, graph: Joined, prices: Prices) -> None:
        self.trace, self.graph, self.prices = trace, graph, prices
        self.rows: list[Event] = []
        self.left = list(graph.waits_for)
        self.heap = [(0.0, index) for index, count in enumerate(self.left) if not count]
        self.free: dict[tuple[int, bool], float] = defaultdict(float)  # device or host of a rank
        self.port: dict[int, float] = defaultdict(float)
        self.there: dict[int, float] = {}  # nodes of collectives and receives: since when
        self.flight: dict[int, tuple[float, float]] = {}  # by receive: leaves, arrives
        self.ready: dict[int, float] = {}  # when the last of those before a node is done
        self.cause: dict[int, int] = {}  # which one that is
        # By rank: when the last node that is no send ends, and that node.
        self.last: dict[int, tuple[float, int]] = {}
        self.done = self.met = 0  # nodes; collectives
        self.leaving = _leaving(graph, prices.devices)
        self.comms = {"": 0}  # numbers of communicators

    def run(self) -> None:
        """Let all nodes happen. Raises SpecError where ranks wait for each other."""
        while self.heap:
            now, at = heappop(self.heap)
            self._start(at, now)
        if self.done < len(self.graph.nodes):
            stuck = min(self.there, key=lambda at: self.there[at])
            words = self.trace.words(self.graph.rank[stuck], self.graph.nodes[stuck])
            raise SpecError(f"{words}: a deadlock: it waits for a rank that waits for this one.")
        for rank, (end, at) in self.last.items():
            self._wait(rank, self.graph.nodes[at].name, end)

    def _start(self, at: int, now: float) -> None:
        node, rank = self.graph.nodes[at], self.graph.rank[at]
        if node.type == "COMP_NODE":
            start = max(now, self.free[rank, node.host])
            if not node.host and at in self.cause:
                self._wait(rank, self.graph.nodes[self.cause[at]].name, start)
            self.free[rank, node.host] = end = start + self.prices.compute(node)
            kind = node.kind if node.kind in WORK and not node.host else "region"
            self._row(at, "host" if node.host else "compute", kind, start, end)
            self._end(at, end)
        elif node.type == "COMM_COLL_NODE":
            self._join(at, now)
        elif node.type == "COMM_SEND_NODE":
            self._send(at, now)
        elif node.type == "COMM_RECV_NODE":
            self.there[at] = now
            if at in self.flight:
                self._receive(at)
        elif node.type in ("MEM_LOAD_NODE", "MEM_STORE_NODE"):
            end = now + self.prices.moved(node)
            self._row(at, "communication", "communication", now, end)
            self._end(at, end)
        else:
            self._end(at, now)

    def _join(self, at: int, now: float) -> None:
        """Join a collective; the last to join ends it for all."""
        self.there[at] = now
        meeting, node = self.graph.meeting[at], self.graph.nodes[at]
        if not all(node in self.there for node in meeting.nodes):
            return
        try:
            end = now + self.prices.collective(node, meeting.ranks)
        except SpecError as error:
            raise SpecError(f"{self.trace.words(self.graph.rank[at], node)}: {error}.") from None
        comm = self.comms.setdefault(node.group, len(self.comms))
        self.met += 1
        for each in meeting.nodes:
            joined_at = self.there.pop(each)
            self._row(each, "communication", "communication", joined_at, end, comm, self.met)
            self._end(each, end)

    def _send(self, at: int, now: float) -> None:
        node, rank = self.graph.nodes[at], self.graph.rank[at]
        cost = self.prices.message(rank, node.peer, node.bytes, self.leaving[at])
        leaves = max(now, self.port[rank])
        self.port[rank] = leaves + float(cost.bandwidth)
        arrives = leaves + float(cost.total)
        receive = self.graph.receive_of[at]
        self.flight[receive] = leaves, arrives
        self._row(at, "communication", "communication", leaves, arrives)
        self._end(at, arrives)
        if receive in self.there:
            self._receive(receive)

    def _receive(self, at: int) -> None:
        since, (leaves, arrives) = self.there.pop(at), self.flight.pop(at)
        end = max(since, arrives)
        self._row(at, "communication", "communication", max(since, leaves), end)
        self._end(at, end)

    def _end(self, at: int, end: float) -> None:
        """Let what follows a node start, if it has waited for this one last."""
        self.done += 1
        rank = self.graph.rank[at]
        if self.graph.nodes[at].type != "COMM_SEND_NODE":
            self.last[rank] = max(self.last.get(rank, (0.0, at)), (end, at))
        for each in self.graph.following[at]:
            self.left[each] -= 1
            if each not in self.ready or end > self.ready[each]:
                self.ready[each], self.cause[each] = end, at
            if not self.left[each]:
                heappush(self.heap, (self.ready.pop(each), each))

    def _wait(self, rank: int, name: str, until: float) -> None:
        """Add the wait of a rank's device, if it is idle until then."""
        since = self.free[rank, False]
        if until > since:
            self.rows.append(Event(rank, "compute", "wait", f"wait for {name}", since, until))

    def _row(
        self,
        at: int,
        stream: str,
        kind: str,
        start: float,
        end: float,
        comm: int = 0,
        met: int = -1,
    ) -> None:
        node, rank = self.graph.nodes[at], self.graph.rank[at]
        if end > start:
            size = round(node.bytes) if stream == "communication" else 0
            self.rows.append(Event(rank, stream, kind, node.name, start, end, size, -1, comm, met))


def _leaving(graph: Joined, devices: int) -> dict[int, int]:
    """Return for each send how many ranks of its node send equally far, out of the node: these share its NICs.

    Ranks run one program, so they send at the same time.
    """
    with_it: dict[tuple[int, int], set[int]] = defaultdict(set)
    kind: dict[int, tuple[int, int]] = {}
    for at in graph.receive_of:
        rank, peer = graph.rank[at], graph.nodes[at].peer
        kind[at] = (rank // devices, peer - rank)
        if rank // devices != peer // devices:
            with_it[kind[at]].add(rank)
    return {at: max(1, len(with_it[key])) for at, key in kind.items()}
