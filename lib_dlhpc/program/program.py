"""The program of a step: blocks of instructions, the calls that execute them, the groups that exchange."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program.calls import FORWARD, OVERLAPPED, PASSES
from lib_dlhpc.program.fold import Folded, Shape, Span, Times, fold
from lib_dlhpc.program.gradient_contention import Above, LinkShares, gradients, shares_of
from lib_dlhpc.program.group import Group
from lib_dlhpc.program.instructions import (
    Collective,
    Compute,
    Instruction,
    Transfer,
    Wait,
    whole_layers,
)
from lib_dlhpc.program.pass_contention import NONE, Busy, Message
from lib_dlhpc.program.ports import Lines, SharedLinks, are_long
from lib_dlhpc.program.step_end import StepEnd, ends_of
from lib_dlhpc.schedules.network import Cost
from lib_dlhpc.schedules.pipeline import Pipeline


class Priced(NamedTuple):
    """What a collective costs."""

    cost: Cost
    seconds: float  # in total
    bytes: float  # of the buffer


class Prices(Protocol):
    """What the instructions of a part cost on a machine."""

    forward: Floats  # s of each layer, (layers,)
    backward: Floats
    weights: Floats  # elements of the weights of each layer
    groups: Mapping[str, Group]  # the same object for stages whose groups lie alike

    @property
    def input_grad(self) -> Floats:
        """Return the seconds of backward without weight gradients, where they are computed apart."""

    @property
    def weight_grad(self) -> Floats:
        """Return the seconds of weight gradients, where they are computed apart."""

    @property
    def forward_block(self) -> Floats:
        """Return the seconds of one of the blocks in which a layer is computed."""

    @property
    def backward_block(self) -> Floats:
        """Return the seconds of one of the blocks of its backward."""

    @property
    def input_grad_block(self) -> Floats:
        """Return the seconds of one of the blocks of its backward without weight gradients."""

    @property
    def seconds(self) -> Mapping[str, list[float]]:
        """Return the seconds of each layer, by phase."""

    @property
    def weights_read(self) -> Sequence[int]:
        """Return the elements of the weights that each layer reads, its own or those that it is tied to."""

    @property
    def limited(self) -> Mapping[str, tuple[Floats, Floats]]:
        """Return the seconds of each layer that arithmetic and memory limit, of "forward" and "backward"."""

    def bytes(self, what: Collective) -> float:
        """Return the bytes of the buffer of a collective."""

    def priced(self, what: Collective) -> Priced:
        """Return what a collective costs whose ranks start together."""

    def busy(self, what: Collective, lane: int) -> Busy:
        """Return the seconds for which a collective keeps each kind of links busy."""

    def work(self, what: Compute) -> tuple[float, float]:
        """Return the FLOP of a computation, and the bytes that it reads and writes."""


@dataclass(frozen=True, eq=False)
class Template:
    """A sequence of instructions, and what of it is the same on every machine."""

    instructions: tuple[Instruction, ...]

    @cached_property
    def shape(self) -> Shape:
        """The instructions ready to be folded, see fold.py."""
        return Shape(self.instructions)

    @property
    def messages(self) -> tuple[tuple[Collective | Transfer, int], ...]:
        """How often each collective and move occurs; those that cost the same are one."""
        return self.shape.messages

    @cached_property
    def within(self) -> tuple[tuple[Collective, NDArray[np.int64]], ...]:
        """The collectives on the stream of computation, and after which layers each is; equal ones are one."""
        found: dict[tuple[object, ...], tuple[Collective, list[int]]] = {}
        layer = 0
        for instruction in self.instructions:
            if isinstance(instruction, Compute):
                layer = instruction.layer
            elif isinstance(instruction, Collective) and not instruction.stream:
                key = *instruction[:6], instruction.algorithm
                found.setdefault(key, (instruction, []))[1].append(layer)
        return tuple((exchange, np.array(layers)) for exchange, layers in found.values())

    @cached_property
    def repeated(self) -> NDArray[np.int64]:
        """The layers whose forward time the instructions spend."""
        if "forward_block" not in self.shape.layers:
            return self.shape.layers.get("forward", np.array([], np.int64))
        products = (each for each in whole_layers(self.instructions) if isinstance(each, Compute))
        return np.array([layer.layer for layer in products if layer.phase == "forward"], np.int64)


class Sent(NamedTuple):
    """Messages of one kind in a pass."""

    kind: str
    cost: Cost = Cost(0.0, 0.0, 0.0)
    seconds: float = 0.0  # of collectives
    within: float = 0.0  # of those on the stream of computation

    def plus(self, other: "Sent", times: float) -> "Sent":
        """Return these messages and others, repeated."""
        _, (latency, bandwidth, reduction), seconds, within = self
        _, cost, more, inside = other
        latency, bandwidth = latency + times * cost[0], bandwidth + times * cost[1]
        both = Cost(latency, bandwidth, reduction + times * cost[2])
        return Sent(self.kind, both, seconds + times * more, within + times * inside)


# Of a pass that finds all streams free: its seconds, its waits by kind, and when each stream is free again.
Alone: TypeAlias = tuple[float, Mapping[str, float], Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Block:
    """A pass through a chunk, for one microbatch.

    The ranks of a stage may differ in their parts: there is one template for each variant, and one table of prices.
    All have the same instructions on other streams than the compute stream.
    """

    variants: tuple[Template, ...]
    prices: tuple[Prices, ...]
    ahead: int = 0  # layers of the forward pass, where it overlaps with a backward pass through the layers behind them
    message: Message | None = None  # of the pass before, on its way when this one begins

    @cached_property
    def folded(self) -> tuple[Folded, ...]:
        """The block as sums, see fold.py."""
        return tuple(fold([variant.shape for variant in self.variants], self.prices, self.message))

    @cached_property
    def gradients(self) -> tuple[float, Busy]:
        """Seconds of the gradients that the pass posts, and their share of the links (gradient_contention.py)."""
        return gradients(self.variants[0].shape, self.prices[0])

    @cached_property
    def _alone(self) -> dict[float, Alone]:
        return {}

    @cached_property
    def _timed(self) -> dict[float, Times]:
        return {}

    def alone(self, factor: float) -> Alone:
        """Return what the pass of one rank takes if it finds all streams free; factor: of compute time."""
        if factor not in self._alone:
            free = dict[str, float]()
            times = self._times(factor)  # read once: not kept
            self._alone[factor] = *_end_of(times, 0.0, free, {}), free
        return self._alone[factor]

    def end(
        self, factor: float, start: float, free: dict[str, float], ends: dict[str, float]
    ) -> tuple[float, dict[str, float]]:
        """Return when the pass of one rank ends, and its waits by kind.

        factor: of compute time. free: when each stream is free, and ends: what was posted ends by key; both are moved
        on.
        """
        if factor not in self._timed:
            self._timed[factor] = self._times(factor)
        return _end_of(self._timed[factor], start, free, ends)

    def _times(self, factor: float) -> Times:
        return self.variants[0].shape.timed(self.prices[0], factor, self.message)

    @cached_property
    def work(self) -> tuple[Floats, ...]:
        """The seconds of all layers forward and backward, and of the repeated ones, by variant."""
        if self.ahead:
            return tuple(seconds.sum(axis=-1) for seconds in self._spent(None))
        return tuple(
            np.array([s.sum(axis=-1) for s in (p.forward, p.backward, p.forward[..., t.repeated])])
            for t, p in zip(self.variants, self.prices, strict=True)
        )

    @cached_property
    def limited(self) -> tuple[NDArray[np.float64], ...]:
        """The seconds that arithmetic and memory limit, (forward or backward with repeated layers, limit) each."""
        if self.ahead:
            both = zip(self._spent(0), self._spent(1), strict=True)
            each = (np.stack([limit.sum(axis=-1) for limit in limits], axis=-1) for limits in both)
            return tuple(np.stack([found[0], found[1] + found[2]]) for found in each)
        found = []
        for template, prices in zip(self.variants, self.prices, strict=True):
            ahead, back = (np.array(prices.limited[phase]) for phase in ("forward", "backward"))
            again = ahead[..., template.repeated].sum(axis=-1)
            found.append(np.stack([ahead.sum(axis=-1), back.sum(axis=-1) + again]))
        return tuple(found)

    def _spent(self, limit: int | None) -> Iterator[Floats]:
        """Yield of each variant of overlapped passes the seconds of its layers, forward, backward and repeated, all of
        them or what one of the limits accounts for, (3, layers)."""
        for template, prices in zip(self.variants, self.prices, strict=True):
            spent = np.zeros((3, len(prices.forward)))
            for phase, layers in template.shape.layers.items():
                way = "forward" if phase.startswith("forward") else "backward"
                seconds, whole = getattr(prices, phase), getattr(prices, way)
                if limit is not None:
                    seconds = seconds * prices.limited[way][limit] / np.where(whole > 0, whole, 1.0)
                row = np.where(layers < self.ahead, 0, 2 if way == "forward" else 1)
                np.add.at(spent, (row, layers), seconds[layers])
            yield spent

    def forward_share(self, variant: int) -> float:
        """Return which part of the work of overlapped passes is the forward pass."""
        forward, backward, again = self.work[variant]
        return float(forward / (forward + backward + again))

    @cached_property
    def messages(self) -> tuple[Sent, ...]:
        """What is sent, by kind: of the variant that exchanges longest within the pass."""
        variants = (self._sent(template) for template in self.variants)
        return max(variants, key=lambda sent: sum(each.seconds for each in sent))

    def _sent(self, template: Template) -> tuple[Sent, ...]:
        by_kind: dict[str, Sent] = {}
        for what, count in template.messages:
            if isinstance(what, Collective):
                cost, seconds, _ = self.prices[0].priced(what)
                message = Sent(what.kind, cost, seconds, 0.0 if what.stream else seconds)
            else:
                message = Sent(what.kind, Cost(0.0, what.seconds, 0.0), 0.0, 0.0)
            by_kind[what.kind] = by_kind.get(what.kind, Sent(what.kind)).plus(message, count)
        return tuple(by_kind.values())


def _end_of(
    times: Times, now: float, free: dict[str, float], ends: dict[str, float]
) -> tuple[float, dict[str, float]]:
    late, (pieces, spent, posted) = dict[str, float](), times
    posts = iter(posted)
    for piece in pieces:
        if isinstance(piece, Span):
            now += spent[piece.number]
        elif isinstance(piece, Wait):
            until = ends[piece.key] if piece.key else free.get(piece.stream, now)
            if until > now:
                late[piece.kind] = late.get(piece.kind, 0.0) + (until - now)
                now = until
        else:
            start = max(now, free.get(piece.stream, now))
            ends[piece.key] = free[piece.stream] = start + next(posts)
    return now, late


@dataclass(frozen=True, eq=False)
class Chunk:
    """What the ranks of one stage do with one chunk of the network."""

    forward: Block
    backward: Block
    last: Block  # the pass of the last microbatch that completes the gradients
    hidden: tuple[Collective, ...]  # of a backward pass, all behind its products: they take no time
    sends: Cost  # the message to the next stage; it occupies the link but for its latency
    bytes: tuple[float, ...]  # B of it, by variant
    weights: Block | None = None  # the pass of weight gradients, where backward leaves them out
    first: Block | None = None  # the first forward pass of a step, where it differs from the others
    # The forward pass, interleaved with a backward pass of the other chunk.
    overlapped: Block | None = None
    uses: Busy = NONE  # the part of its time for which the message keeps each kind of links busy

    def block(self, phase: str, once: bool) -> Block:
        """Return the block of a pass; phase: one of PASSES, or OVERLAPPED; once: whether it is the first or the last,
        see Call."""
        if once and phase == FORWARD:
            return self.first or self.forward
        block: Block = self.last if once else getattr(self, phase)
        return block

    def repeated(
        self, microbatches: int, overlaps: tuple[int, int]
    ) -> tuple[tuple[Block | None, int], ...]:
        """Return the block of each of PASSES, and of OVERLAPPED, but for the first or last of a step, and how often it
        is executed; see `passes`."""
        counts = {id(block): times for block, times in self.passes(microbatches, overlaps)[:-1]}
        blocks = (self.block(phase, False) for phase in (*PASSES, OVERLAPPED))
        return tuple((block, counts[id(block)] if block is not None else 0) for block in blocks)

    def passes(
        self, microbatches: int, overlaps: tuple[int, int] = (0, 0)
    ) -> tuple[tuple[Block, int], ...]:
        """Return the blocks of a step, and how often each is executed.

        overlaps: how many of its forward and of its backward passes overlap with a pass of the other chunk.
        """
        ahead, back = (microbatches - many for many in overlaps)
        forward: tuple[tuple[Block, int], ...] = ((self.forward, ahead),)
        if self.first is not None:
            forward = (self.first, 1), (self.forward, ahead - 1)
        if self.weights is None:
            backward: tuple[tuple[Block, int], ...] = ((self.backward, back - 1),)
        else:
            backward = (self.backward, back), (self.weights, back - 1)
        both = ((self.overlapped, overlaps[0]),) if self.overlapped is not None else ()
        return *forward, *backward, *both, (self.last, 1)


@dataclass(frozen=True, eq=False)
class Program:
    """A training step of all ranks.

    The ranks of a stage are an array of `shape`, whose axis 1 is the variants; ranks are numbered stage by stage.
    end: what follows after the last call, one row after another, an instruction or None for each stage.
    """

    schedule: Pipeline  # what each stage does, call by call
    stages: tuple[tuple[Chunk, ...], ...]  # by place in the pipeline, and chunk
    end: tuple[tuple[Instruction | None, ...], ...]
    groups: Mapping[str, Group]
    shape: tuple[int, int, int]
    in_step: Group  # ranks that exchange within a pass, and so keep in step
    kinds: Mapping[str, str]  # what an exchange of each kind is called
    between: str  # the kind of messages between stages
    lines: Lines | None = None  # of messages between stages that may share links
    above: Above | None = None  # see gradient_contention.py; None: no messages, or from both ends

    @cached_property
    def meets(self) -> SharedLinks | None:
        """The lines of messages that share links, if these take long enough to meet."""
        if self.lines is None:
            return None
        chunks = [chunk for stage, _ in self.distinct for chunk in stage]
        ahead, back = (
            np.array([chunk.alone(1.0)[0] for chunk in blocks])
            for blocks in (
                [chunk.forward for chunk in chunks],
                [chunk.backward for chunk in chunks],
            )
        )
        busy = np.array([float(chunk.sends.bandwidth) for chunk in chunks])
        return (
            self.lines.meets(self.schedule.name)
            if are_long(busy, ahead, back, self.lines.far)
            else None
        )

    @cached_property
    def shares(self) -> LinkShares | None:
        """What messages share with gradients that are exchanged meanwhile."""
        return shares_of(self.stages, self.above) if self.above else None

    @cached_property
    def distinct(self) -> tuple[tuple[tuple[Chunk, ...], tuple[int, ...]], ...]:
        """The stages that differ in their passes, and the places in the pipeline of those that are like each."""
        stages_of: dict[tuple[int, ...], list[int]] = {}
        turns = self.schedule.overlapped
        for place, stage in enumerate(self.stages):
            key = tuple([id(chunk.last) for chunk in stage])
            stages_of.setdefault((*key, *turns[place]), []).append(place)
        return tuple((self.stages[places[0]], tuple(places)) for places in stages_of.values())

    def overlaps(self, place: int, chunk: int) -> tuple[int, int]:
        """Return how many forward, and how many backward passes of a chunk overlap with one of the other chunk."""
        turns = self.schedule.overlapped[place]
        return turns[chunk], sum(turns) - turns[chunk]

    @cached_property
    def ends(self) -> StepEnd:
        """What follows the last call, with its prices."""
        return ends_of(self.stages, self.end)
