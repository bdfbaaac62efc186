"""Costs of a stage of a split network for its ranks, reduced for rounds."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute, groups, offload
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.sharded import Sharded, sharded
from lib_dlhpc.costs.stage import stage_cost
from lib_dlhpc.costs.stored_activations import stored_bytes
from lib_dlhpc.layout import Part, Place, parts, rank_at, sizes, stride
from lib_dlhpc.schedules.pipeline import PIPELINES, Pipeline
from lib_dlhpc.simulation.program import Item, Work, program
from lib_dlhpc.spec.experiment import Experiment

WORDS = {"tensor": "tensor exchange", "spatial": "halo exchange", "experts": "expert exchange"}
Floats = NDArray[np.float64]  # of the ranks at one place of the pipeline: (data, spatial, tensor)


class Pass(NamedTuple):
    """A program in four numbers: work before the first exchange, between them, after the last; and talk.

    Ranks of a group that has exchanged once are in step, so what comes between two exchanges takes as
    long as it takes the slowest of them. A halo counts as an exchange of the whole group.
    """

    head: Floats
    middle: Floats
    tail: Floats
    talk: float  # s
    bytes: float  # B that a rank exchanges
    replicas: int = 1  # that share out experts and so keep in step as well

    def ends(self, start: Floats, factor: Floats) -> tuple[Floats, Floats]:
        """Return when work and messages are done, and the seconds of work."""
        worked = factor * (self.head + self.middle + self.tail)
        if not self.talk:
            return start + worked, worked
        met, slowed = (
            slowest(each, self.replicas)
            for each in (start + factor * self.head, factor * self.middle)
        )
        return met + slowed + self.talk + factor * self.tail, worked


@dataclass(frozen=True)
class Stage:
    """A stage as the ranks at one place of the pipeline have it."""

    forward: Pass
    backward: Pass
    sends: Cost  # s of the message to the next stage: it occupies the link but for its latency
    bytes: float  # of it
    sharded: tuple[Sharded, Sharded] | None  # what comes with a forward and with a backward pass
    moving: tuple[
        float, float
    ]  # s that what is offloaded moves in a forward and in a backward pass
    moved: tuple[float, float]  # B of it, both directions together


def stages(experiment: Experiment, place: int, scale: float) -> list[Stage]:
    """Return the stages at one place of the pipeline, one a chunk."""
    size, apart = sizes(experiment), stride(experiment, "pipeline")
    # Ranks of a tensor group have equal parts but for an element; those in space differ at the edges.
    held = [
        parts(experiment, rank_at(experiment, Place(place, 0, space, 0)))
        for space in range(size.spatial)
    ]
    found, shared = [], int(experiment.strategy.experts)
    for chunk, part in enumerate(held[0]):
        programs = [program(experiment, each[chunk], scale) for each in held]
        following = (place + 1) % size.pipeline
        way = groups.wire(experiment, place * apart, following * apart, apart)
        most = max(each.sends for each in programs)
        found.append(
            Stage(
                _pass([each.forward for each in programs], shared),
                _pass([each.backward for each in programs], shared),
                way.cost(most) if most else groups.NOTHING,
                most,
                _exchanged(experiment, part, scale) if experiment.strategy.zero > 1 else None,
                *offloaded(experiment, part),
            )
        )
    return found


def _exchanged(experiment: Experiment, part: Part, scale: float) -> tuple[Sharded, Sharded]:
    batch = experiment.strategy.batch / experiment.strategy.microbatches
    return sharded(experiment, part.model, stage_cost(experiment, part, batch, scale))


def update_moving(experiment: Experiment, held: tuple[Part, ...]) -> float:
    """Return the seconds that a rank's offloaded state moves in an update."""
    parameters = sum(part.model.parameters for part in held)
    away = offload.offload_traffic(experiment, parameters, 0.0)
    return offload.offload_link(experiment).seconds(away.update_out, away.update_in)


def offloaded(
    experiment: Experiment, part: Part
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return s and B of what moves to where it waits and back, in a forward and in a backward pass."""
    strategy = experiment.strategy
    if strategy.offload == "none":
        return (0.0, 0.0), (0.0, 0.0)
    size, batch = compute.BYTES[strategy.precision], strategy.batch / strategy.microbatches
    left = batch * stored_bytes(part, size, strategy.recompute)
    way, away = (
        offload.offload_link(experiment),
        offload.offload_traffic(experiment, part.model.parameters, left),
    )
    both = ((away.forward_out, away.forward_in), (away.backward_out, away.backward_in))
    seconds, moved = [way.seconds(*each) for each in both], [sum(each) for each in both]
    return (seconds[0], seconds[1]), (moved[0], moved[1])


def _pass(every: list[tuple[Item, ...]], replicas: int) -> Pass:
    """Return the pass of a stage; one sequence of items for each place in space."""
    heads, middles, tails, talks, sizes_of = [], [], [], [], []
    for items in every:
        met = [at for at, item in enumerate(items) if not isinstance(item, Work)]
        first, final = (met[0], met[-1] + 1) if met else (len(items), len(items))
        heads.append(_work(items[:first]))
        middles.append(_work(items[first:final]))
        tails.append(_work(items[final:]))
        talks.append(sum(item.seconds for item in items if not isinstance(item, Work)))
        sizes_of.append(sum(item.bytes for item in items if not isinstance(item, Work)))
    head, middle, tail = (np.array(each)[None, :, None] for each in (heads, middles, tails))
    return Pass(head, middle, tail, max(talks), max(sizes_of), replicas)


def _work(items: Iterable[Item]) -> float:
    return sum(item.seconds for item in items if isinstance(item, Work))


def slowest(values: Floats, replicas: int = 1) -> Floats:
    """Return the largest of each tensor or spatial group of N replicas, in the place of all of them."""
    blocks = values.reshape(-1, replicas, *values.shape[1:])
    largest = np.broadcast_to(blocks.max(axis=(1, 2, 3), keepdims=True), blocks.shape)
    return largest.reshape(values.shape)


def pipeline_of(experiment: Experiment) -> Pipeline:
    """Return the streams of instructions of an experiment's pipeline; one rank has one as well."""
    strategy, ranks = experiment.strategy, sizes(experiment).pipeline
    many, chunks = int(strategy.microbatches), int(strategy.chunks)
    if strategy.schedule == "interleaved":
        return PIPELINES["interleaved"](ranks, many, chunks)
    return PIPELINES[strategy.schedule](ranks, many)


def update_time(experiment: Experiment, held: tuple[Part, ...], scale: float) -> float:
    """Return the seconds of a rank's update; of its share of it where replicas share the state."""
    device, optimizer = experiment.machine.device, experiment.strategy.optimizer
    seconds = sum(compute.update_time(part.model, device, optimizer) for part in held)
    shared = sizes(experiment).data if experiment.strategy.zero else 1
    return float(scale * seconds / shared)


def exchange_word(experiment: Experiment) -> str:
    """Return the exchange in which the ranks of a replica meet, or that of replicas with each microbatch."""
    size = sizes(experiment)
    if size.tensor * size.spatial * int(experiment.strategy.experts) == 1:
        return "weights and gradients"
    kind = "tensor" if size.tensor > 1 else "spatial" if size.spatial > 1 else "experts"
    return WORDS[kind]
