"""The program of a step as Chakra nodes, rank by rank.

    Compute      COMP_NODE with its seconds, FLOP and bytes; Update without FLOP. What takes no time is left out
    Collective   COMM_COLL_NODE in a process group; one group for each stream and each group of ranks
    neighbors    of a halo or a ring: a COMM_SEND_NODE and a COMM_RECV_NODE for each, for all of which the rank waits
    a message    COMM_SEND_NODE, which nothing waits for, and COMM_RECV_NODE; the tag numbers the pass that sends
    PairAllreduce   a send and a receive, for both of which the rank waits, and the addition
    Transfer     MEM_STORE_NODE, both directions at once
    Barrier      a BARRIER of all ranks
    Wait         no node: what follows depends on what is waited for

A node depends on the last one of the compute stream; what is posted to another stream depends on the last one there,
too. All ranks compute as long as predicted, without jitter. Gathers that always overlap products take no time
(`Chunk.hidden`), and are left out.
"""

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

from lib_dlhpc import parallel, program
from lib_dlhpc.errors import SpecError
from lib_dlhpc.program.intervals import kind_of, message_name, pass_name
from lib_dlhpc.simulation.step import check, compute_scale
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import AUTO
from lib_dlhpc.timeline.chakra import Node, write_trace

OF_GOAL = {
    "allreduce": "ALL_REDUCE",
    "allgather": "ALL_GATHER",
    "reduce_scatter": "REDUCE_SCATTER",
    "all_to_all": "ALL_TO_ALL",
}


def export(experiment: Experiment, folder: str | Path, ranks: Sequence[int] | None = None) -> int:
    """Write the trace of a step: a file for each rank, or for some; return how many files.

    Raises SpecError for updates that are not synchronous, and for ranks that there are not; OSError where nothing can
    be written.
    """
    check(experiment, "rounds", 0, 1)
    update = experiment.strategy.update
    if update != "synchronous":
        raise SpecError(f"strategy.update = {update!r}: only synchronous steps are exported.")
    every = range(int(experiment.devices))
    wrong = [rank for rank in ranks or () if rank not in every]
    if wrong:
        raise SpecError(f"ranks: {wrong[0]}: expected ranks from 0 to {every[-1]}.")
    step = parallel.program(experiment, compute_scale(experiment))
    groups = Groups(step)
    chosen = every if ranks is None else sorted(set(ranks))
    write_trace(folder, ((rank, nodes(step, groups, rank)) for rank in chosen), groups.ranks)
    return len(chosen)


class Groups:
    """The process groups of a program: names by stream and kind, and the ranks of each."""

    def __init__(self, step: program.Program) -> None:
        self.step, self.many = step, prod(step.shape)
        self.ranks: dict[str, tuple[int, ...]] = {}
        self._first: dict[tuple[str, str], int] = {}
        for stream, kind in sorted(_used(step)):
            self._first[stream, kind] = len(self.ranks) + 1
            for place in range(step.schedule.ranks):
                for row in step.groups[kind].rows.tolist():
                    name = str(len(self.ranks) + 1)
                    self.ranks[name] = tuple(place * self.many + rank for rank in row)

    def of(self, rank: int, what: program.Collective) -> str:
        """Return the name of the group in which a rank takes part in a collective."""
        (place, here), group = divmod(rank, self.many), self.step.groups[what.group]
        row = place * len(group.rows) + int(group.group_of[here])
        return str(self._first[what.stream, what.group] + row)


def _used(step: program.Program) -> set[tuple[str, str]]:
    """Return stream and kind of group of all collectives."""
    blocks = {
        id(block): block
        for place, stage in enumerate(step.stages)
        for number, chunk in enumerate(stage)
        for block, _ in chunk.passes(step.schedule.each, step.overlaps(place, number))
    }
    every: list[program.Instruction | None] = [what for row in step.end for what in row]
    for block in blocks.values():
        for variant in block.variants:
            every += variant.instructions
    groups = (
        what for what in every if isinstance(what, program.Collective) and what.goal in OF_GOAL
    )
    return {(what.stream, what.group) for what in groups}


def nodes(step: program.Program, groups: Groups, rank: int) -> Iterator[Node]:
    """Yield what a rank does in a step, each node after those that it depends on."""
    return _Rank(step, groups, rank).run()


class _Rank:
    """A rank that executes its calls, writing down what it does."""

    def __init__(self, step: program.Program, groups: Groups, rank: int) -> None:
        self.step, self.groups, self.rank = step, groups, rank
        self.many = groups.many
        self.place = rank // self.many
        _, variants, alike = step.shape
        self.variant = rank // alike % variants
        self.prices = step.stages[self.place][0].last.prices[self.variant]
        self.number = 0
        self.now: tuple[int, ...] = ()  # on which what comes next on the compute stream depends
        self.free: dict[str, tuple[int, ...]] = {}  # the last nodes of other streams

    def run(self) -> Iterator[Node]:
        every = program.calls(self.step.schedule)
        for number, call in enumerate(every):
            if call.place != self.place:
                continue
            if call.source >= 0:
                yield self._next(self._message(every[call.source], call.source, received=True))
            if call.computes:
                yield from self._pass(call)
            if call.target >= 0:
                yield self._posted(self._message(call, number, received=False))
        for number, row in enumerate(self.step.end):
            what = row[self.place]
            if what is not None:
                yield from self._after(what, len(every) + number)

    def _next(self, node: Node) -> Node:
        """Return a node as the next of the compute stream."""
        node = self._posted(node)
        self.now = (node.id,)
        return node

    def _posted(self, node: Node, stream: str = "") -> Node:
        """Return a node that the compute stream starts, and does not wait for."""
        after = tuple(dict.fromkeys((*self.now, *self.free.get(stream, ()))))
        node = node._replace(id=self.number, after=after)
        self.number += 1
        if stream:
            self.free[stream] = (node.id,)
        return node

    def _message(self, call: program.Call, number: int, received: bool) -> Node:
        """Return the send of a call's message, or its receive."""
        before, chunk = call.before
        size = self.step.stages[before][chunk].bytes[self.variant]
        other = call.place if received else call.target
        peer = self.rank + (other - self.place) * self.many
        kind, word = ("COMM_RECV_NODE", "receive") if received else ("COMM_SEND_NODE", "send")
        name = f"{word} {message_name(call)}"
        return Node(0, name, kind, bytes=size, peer=peer, tag=number)

    def _pass(self, call: program.Call) -> Iterator[Node]:
        block = self.step.stages[self.place][call.chunk].block(call.phase, call.once)
        name, halves = pass_name(self.step, call), call.halves
        names = [(kind_of(half), pass_name(self.step, half)) for half in halves]
        prices = block.prices[self.variant]
        posted: dict[str, tuple[int, ...]] = {}
        for what in block.variants[self.variant].instructions:
            if isinstance(what, program.Compute):
                seconds = prices.seconds[what.phase][what.layer]
                if seconds:
                    flop, size = prices.work(what)
                    behind = len(halves) > 1 and what.layer >= block.ahead
                    kind, word = names[behind]
                    words = f"{word}, layer {what.layer - block.ahead * behind}"
                    yield self._next(
                        Node(0, words, "COMP_NODE", (), seconds, flop, size, kind=kind)
                    )
            elif isinstance(what, program.Wait):
                self._wait(posted[what.key] if what.key else self.free.get(what.stream, ()))
            elif isinstance(what, program.Collective) and what.pairs:
                yield from self._neighbors(what, name)
                posted[what.key] = self.free.get(what.stream, self.now)
            elif isinstance(what, program.Collective) and not what.stream:
                if self._exchanges(what):
                    yield self._next(self._collective(what, name))
            elif isinstance(what, program.Collective | program.Transfer):
                yield from self._post(what, name)
                posted[what.key] = self.free.get(what.stream, self.now)

    def _after(self, what: program.Instruction, tag: int) -> Iterator[Node]:
        """Yield an instruction of the end of the step."""
        if isinstance(what, program.Update):
            yield self._next(Node(0, "update", "COMP_NODE", (), what.seconds, kind="update"))
        elif isinstance(what, program.Wait):
            self._wait(self.free.get(what.stream, ()))
        elif isinstance(what, program.Barrier):
            yield self._next(Node(0, "all ranks", "COMM_COLL_NODE", collective="BARRIER"))
        elif isinstance(what, program.PairAllreduce):
            (other,) = (place for place in what.places if place != self.place)
            peer = self.rank + (other - self.place) * self.many
            message = Node(0, what.name, "COMM_SEND_NODE", bytes=what.bytes, peer=peer, tag=tag)
            yield from self._together([message, message._replace(type="COMM_RECV_NODE")])
            if seconds := float(what.cost.reduction):
                yield self._next(Node(0, f"add: {what.name}", "COMP_NODE", (), seconds))
        elif isinstance(what, program.Collective | program.Transfer):
            yield from self._post(what, "")

    def _neighbors(self, what: program.Collective, name: str) -> Iterator[Node]:
        """Yield the messages to and from the neighbors of a rank."""
        group, here = self.step.groups[what.group], self.rank % self.many
        row = group.rows[group.group_of[here]].tolist()
        words = f"{self.step.kinds[what.kind]}: {name}"
        neighbors = []
        for source, target, elements in what.pairs:
            if here in (row[source], row[target]):
                sends = here == row[source]
                far = self.place * self.many + row[target if sends else source]
                size = self.prices.bytes(what._replace(elements=elements))
                kind = "COMM_SEND_NODE" if sends else "COMM_RECV_NODE"
                neighbors.append(Node(0, words, kind, bytes=size, peer=far))
        yield from self._together(neighbors, what.stream)

    def _together(self, messages: list[Node], stream: str = "") -> Iterator[Node]:
        """Yield messages that start at once, and for all of which the rank, or its stream, waits."""
        before = self.free.pop(stream, ())
        posted = [self._posted(node) for node in messages]
        if before:
            posted = [node._replace(after=(*node.after, *before)) for node in posted]
        yield from posted
        ids = tuple(node.id for node in posted)
        if stream:
            self.free[stream] = ids or before
        else:
            self.now = ids or self.now

    def _wait(self, until: tuple[int, ...]) -> None:
        self.now = tuple(dict.fromkeys((*self.now, *until)))

    def _post(self, what: program.Collective | program.Transfer, name: str) -> Iterator[Node]:
        if isinstance(what, program.Transfer):
            node = Node(0, "offload", "MEM_STORE_NODE", (), what.seconds, bytes=what.bytes)
            yield self._posted(node, what.stream)
        elif self._exchanges(what):
            yield self._posted(self._collective(what, what.label or name), what.stream)

    def _exchanges(self, what: program.Collective) -> bool:
        return self.step.groups[what.group].size > 1

    def _collective(self, what: program.Collective, name: str) -> Node:
        """Return a collective; its size is what each rank gives: of an allgather, a part of the buffer."""
        size = self.prices.bytes(what)
        if what.goal == "allgather":
            size /= self.step.groups[what.group].size
        return Node(
            0,
            f"{self.step.kinds[what.kind]}: {name}" if name else self.step.kinds[what.kind],
            "COMM_COLL_NODE",
            bytes=size,
            collective=OF_GOAL[what.goal],
            group=self.groups.of(self.rank, what),
            algorithm="" if what.algorithm == AUTO else what.algorithm,
        )
