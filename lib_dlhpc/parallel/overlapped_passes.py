"""DualPipe's turns of two passes, with what each exchanges for experts behind what the other computes.

A rank's forward pass of one direction and backward pass of the other depend on nothing of each other. So each posts its
all-to-alls, the other computes while they travel, and it waits for one before it computes what follows it. What is
waited for is exposed; no exchange hides behind more than the other pass computes meanwhile, and the weight gradients
of its own. Outside of such turns, while the pipeline fills and drains, all-to-alls are exposed.

The order is fixed before the step, by the FLOP of layers. The pass with more exchanges computes from one to the next, a
leg at a time. Before its next leg the other computes up to an exchange of its own, which that leg then hides, but no
more of its FLOP than the first will have done after that leg. Where each has an exchange for each of the other, as
without recomputation, they take turns, as in the authors' figure 4.

Sources: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.2.1, figure 4.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import Part
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Collective, Compute, Instruction, Template, Transfer, Wait
from lib_dlhpc.program.calls import BACKWARD, FORWARD
from lib_dlhpc.spec.experiment import Experiment

STREAM, LABEL = "experts", "the expert exchange"


def overlaps_passes(experiment: Experiment) -> bool:
    """Return whether the passes of a turn overlap: where they exchange for experts, and messages can be in flight."""
    s = experiment.strategy
    return s.mirrored and int(s.experts) > 1 and bool(experiment.overlap)


def overlapped(ahead: Passes, back: Passes) -> Template:
    """Return a forward pass and all of a backward pass through another part, interleaved.

    Layers of `back` are numbered behind those of `ahead`.
    """
    templates = ahead.forward_pass, back.backward_pass, back.weights_pass
    return _overlapped(Keyed((ahead, back), *map(id, templates)))


def hides_exchanges(both: Template) -> bool:
    """Return whether overlapped passes exchange for experts at all."""
    return any(isinstance(op, Collective) and op.stream == STREAM for op in both.instructions)


@lru_cache(maxsize=1024)
def _overlapped(key: Keyed[tuple[Passes, Passes]]) -> Template:
    ahead, back = key.value
    first = len(ahead.part.model.layers)
    forward = _legs(_Side(FORWARD, ahead.part, 0), ahead.forward_pass.instructions, ())
    weights = back.weights_pass.instructions
    backward = _legs(_Side(BACKWARD, back.part, first), back.backward_pass.instructions, weights)
    legs = sorted((backward, forward), key=len, reverse=True)
    return Template(tuple(_interleaved(*legs)))


class _Work(NamedTuple):
    """An instruction, what part of its pass's FLOP it is, and whether it posts an exchange of its pass."""

    what: Instruction
    share: float = 0.0
    posts: bool = False


# What a pass does from one of its exchanges to the next: it waits for the one, computes, and posts the other.
Leg: TypeAlias = list[_Work]


class _Side(NamedTuple):
    """One of the two passes; first: the number of its first layer."""

    name: str
    part: Part
    first: int

    def _flop(self, compute: Compute) -> float:
        """Return the FLOP of a computation; a block of a layer counts as much as the layer."""
        times = 2 if compute.phase.startswith("backward") else 1
        return times * float(self.part.model.layer_forward_flop[compute.layer])

    def own(self, instructions: Iterable[Instruction]) -> Iterator[tuple[Instruction, float]]:
        """Yield instructions with layers and keys that are not those of the other pass, and the FLOP of each.

        A wait for all that is on a stream waits for what this pass has posted there.
        """
        posted: dict[str, list[str]] = {}
        for number, op in enumerate(instructions):
            if isinstance(op, Compute):
                yield (op._replace(layer=op.layer + self.first), self._flop(op))
            elif isinstance(op, Collective | Transfer) and op.stream:
                key = f"{self.name} {op.key or number}"
                posted.setdefault(op.stream, []).append(key)
                yield op._replace(key=key), 0.0
            elif isinstance(op, Wait):
                keys = [f"{self.name} {op.key}"] if op.key else [*posted.get(op.stream, ())]
                for key in keys:
                    posted[op.stream].remove(key)
                    yield op._replace(key=key), 0.0
            else:
                yield op, 0.0

    def post(self, what: Collective, number: int) -> Collective:
        """Return an exchange that travels while the other pass computes."""
        return what._replace(stream=STREAM, key=self._key(number))

    def wait(self, number: int) -> Wait:
        """Return the wait for an exchange."""
        return Wait(STREAM, STREAM, self._key(number), LABEL)

    def _key(self, number: int) -> str:
        return f"{self.name} exchange {number}"


def _legs(
    side: _Side, instructions: Sequence[Instruction], weights: Sequence[Instruction]
) -> list[Leg]:
    """Return the legs of a pass; weight gradients follow the leg that computes the gradients of the layer's input."""
    first, second = [*side.own(instructions)], [*side.own(weights)]
    total = sum(flop for _, flop in (*first, *second)) or 1.0
    legs, leg_of = [Leg()], dict[int, int]()
    for op, flop in first:
        number = len(legs) - 1
        if isinstance(op, Collective) and op.kind == STREAM and not op.stream:
            legs[-1].append(_Work(side.post(op, number), 0.0, True))
            legs.append([_Work(side.wait(number))])
            continue
        if isinstance(op, Compute):
            leg_of[op.layer] = number
        legs[-1].append(_Work(op, flop / total))
    number = 0
    for op, flop in second:
        if isinstance(op, Compute):
            number = max(number, leg_of[op.layer])
        legs[number].append(_Work(op, flop / total))
    return legs


def _interleaved(legs: list[Leg], others: list[Leg]) -> Iterator[Instruction]:
    """Yield the instructions of two passes; the first has as many legs or more."""
    rest, behind = deque(chain.from_iterable(others)), 0.0
    done = np.cumsum([sum(work.share for work in leg) for leg in legs]).tolist()
    for leg, until in zip(legs, [*done[1:], np.inf], strict=True):
        yield from (work.what for work in leg)
        while rest and behind < until:
            work = rest.popleft()
            yield work.what
            behind += work.share
            if work.posts and until < np.inf:
                break
