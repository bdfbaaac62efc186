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
    devices = devices_per_node or machine.devices_per_node
    if not 1 <= devices <= machine.devices_per_node:
        raise SpecError(f"devices_per_node = {devices}; legal: 1 to {machine.devices_per_node}.")
    if -(-trace.ranks // devices) > machine.nodes:
        raise SpecError(
            f"{trace.ranks} ranks, {devices} on each node, need {-(-trace.ranks // devices)} nodes;"
            f" {machine.name or 'the machine'} has {machine.nodes}."
        )
    walk = _Walk(trace, joined(trace), Prices(machine, trace.ranks, devices))
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
            now, number = heappop(self.heap)
            self._start(number, now)
        if self.done < len(self.graph.nodes):
            stuck = min(self.there, key=lambda at: self.there[at])
            words = self.trace.words(self.graph.rank[stuck], self.graph.nodes[stuck])
            raise SpecError(f"{words}: a deadlock: it waits for a rank that waits for this one.")
        for rank, (end, number) in self.last.items():
            self._wait(rank, self.graph.nodes[number].name, end)

    def _start(self, number: int, now: float) -> None:
        node, rank = self.graph.nodes[number], self.graph.rank[number]
        if node.type == "COMP_NODE":
            start = max(now, self.free[rank, node.host])
            if not node.host and number in self.cause:
                self._wait(rank, self.graph.nodes[self.cause[number]].name, start)
            self.free[rank, node.host] = end = start + self.prices.compute(node)
            kind = node.kind if node.kind in WORK and not node.host else "region"
            self._row(number, "host" if node.host else "compute", kind, start, end)
            self._end(number, end)
        elif node.type == "COMM_COLL_NODE":
            self._join(number, now)
        elif node.type == "COMM_SEND_NODE":
            self._send(number, now)
        elif node.type == "COMM_RECV_NODE":
            self.there[number] = now
            if number in self.flight:
                self._receive(number)
        elif node.type in ("MEM_LOAD_NODE", "MEM_STORE_NODE"):
            end = now + self.prices.moved(node)
            self._row(number, "communication", "communication", now, end)
            self._end(number, end)
        else:
            self._end(number, now)

    def _join(self, number: int, now: float) -> None:
        """Join a collective; the last to join ends it for all."""
        self.there[number] = now
        meeting, node = self.graph.meeting[number], self.graph.nodes[number]
        if not all(node in self.there for node in meeting.nodes):
            return
        try:
            end = now + self.prices.collective(node, meeting.ranks)
        except SpecError as error:
            raise SpecError(
                f"{self.trace.words(self.graph.rank[number], node)}: {error}."
            ) from None
        comm = self.comms.setdefault(node.group, len(self.comms))
        self.met += 1
        for member in meeting.nodes:
            joined_at = self.there.pop(member)
            self._row(member, "communication", "communication", joined_at, end, comm, self.met)
            self._end(member, end)

    def _send(self, number: int, now: float) -> None:
        node, rank = self.graph.nodes[number], self.graph.rank[number]
        cost = self.prices.message(rank, node.peer, node.bytes, self.leaving[number])
        leaves = max(now, self.port[rank])
        self.port[rank] = leaves + float(cost.bandwidth)
        arrives = leaves + float(cost.total)
        receive = self.graph.receive_of[number]
        self.flight[receive] = leaves, arrives
        self._row(number, "communication", "communication", leaves, arrives)
        self._end(number, arrives)
        if receive in self.there:
            self._receive(receive)

    def _receive(self, number: int) -> None:
        since, (leaves, arrives) = self.there.pop(number), self.flight.pop(number)
        end = max(since, arrives)
        self._row(number, "communication", "communication", max(since, leaves), end)
        self._end(number, end)

    def _end(self, number: int, end: float) -> None:
        """Let what follows a node start, if it has waited for this one last."""
        self.done += 1
        rank = self.graph.rank[number]
        if self.graph.nodes[number].type != "COMM_SEND_NODE":
            self.last[rank] = max(self.last.get(rank, (0.0, number)), (end, number))
        for follower in self.graph.following[number]:
            self.left[follower] -= 1
            if follower not in self.ready or end > self.ready[follower]:
                self.ready[follower], self.cause[follower] = end, number
            if not self.left[follower]:
                heappush(self.heap, (self.ready.pop(follower), follower))

    def _wait(self, rank: int, name: str, until: float) -> None:
        """Add the wait of a rank's device, if it is idle until then."""
        since = self.free[rank, False]
        if until > since:
            self.rows.append(Event(rank, "compute", "wait", f"wait for {name}", since, until))

    def _row(
        self,
        number: int,
        stream: str,
        kind: str,
        start: float,
        end: float,
        comm: int = 0,
        met: int = -1,
    ) -> None:
        node, rank = self.graph.nodes[number], self.graph.rank[number]
        if end > start:
            size = round(node.bytes) if stream == "communication" else 0
            self.rows.append(Event(rank, stream, kind, node.name, start, end, size, -1, comm, met))


def _leaving(graph: Joined, devices: int) -> dict[int, int]:
    """Return for each send how many ranks of its node send equally far, out of the node: these share its NICs.

    Ranks run one program, so they send at the same time.
    """
    with_it: dict[tuple[int, int], set[int]] = defaultdict(set)
    kind: dict[int, tuple[int, int]] = {}
    for number in graph.receive_of:
        rank, peer = graph.rank[number], graph.nodes[number].peer
        kind[number] = (rank // devices, peer - rank)
        if rank // devices != peer // devices:
            with_it[kind[number]].add(rank)
    return {number: max(1, len(with_it[key])) for number, key in kind.items()}
