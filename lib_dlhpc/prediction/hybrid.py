"""One step of a network that is split: tensor, spatial and pipeline parallelism with data parallelism, ZeRO.

A step is the pipeline's time (pipelined.py) of stages whose layers and messages are those of `layout`
(costs/stage.py), then the exposed gradient synchronization, then the update. Seconds are the mean over the ranks of
a pipeline, as in a timeline; the rest of the step of a mean rank is bubble or waiting.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.costs import compute, groups, stragglers
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.offload import OffloadTraffic, offload_link, offload_traffic
from lib_dlhpc.costs.sharded import handed_out
from lib_dlhpc.costs.stage import StageCost, stage_cost
from lib_dlhpc.costs.stored_activations import stored_bytes
from lib_dlhpc.layout import Part, Place, parts, rank_at, sizes, stride
from lib_dlhpc.prediction import offload, sharding
from lib_dlhpc.prediction.pipelined import Ranks, free, pipeline_time
from lib_dlhpc.prediction.sharding import Exchange
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

Chain: TypeAlias = tuple[tuple[Part, ...], ...]  # the parts of each rank of a pipeline
KINDS = ("tensor", "experts", "halo", "pipeline", "data", "offload")


@dataclass(frozen=True)
class Step:
    """Seconds of a step, mean of the ranks; messages and their exposed part by kind."""

    forward: float
    backward: float  # recomputation included
    recomputation: float
    update: float
    waiting: float
    messages: dict[str, Cost]
    exposed: dict[str, float]
    bubble: float

    @property
    def total(self) -> float:
        """Seconds from the first forward pass to the last update."""
        work = self.forward + self.backward + self.update + self.waiting
        return work + sum(self.exposed.values()) + self.bubble


def rank_parts(experiment: Experiment) -> tuple[Chain, ...]:
    """Return the parts of each rank of a pipeline, for the spatial positions that can be the slowest.

    Parts of a tensor group differ by at most one element, and the first is the larger.
    """
    size = sizes(experiment)
    places = sorted({0, min(1, size.spatial - 1), size.spatial - 1})
    return tuple(
        tuple(
            parts(experiment, rank_at(experiment, Place(stage, 0, place, 0)))
            for stage in range(size.pipeline)
        )
        for place in places
    )


def split_step(experiment: Experiment, scale: Any) -> Step:
    """Predict the step of a scalar experiment; compute time is `scale` times the roofline's.

    Raises SpecError where the network cannot be split so.
    """
    strategy, size = experiment.strategy, sizes(experiment)
    many, chunks = int(strategy.microbatches), int(strategy.chunks)
    batch = strategy.batch / many
    chains = rank_parts(experiment)
    priced = [
        [[stage_cost(experiment, part, batch, scale) for part in rank] for rank in chain]
        for chain in chains
    ]
    # The ranks of a group wait for its slowest rank at every collective.
    worst = [
        max((chain[at] for chain in priced), key=lambda rank: sum(s.ahead + s.back for s in rank))
        for at in range(size.pipeline)
    ]
    beside = [
        _beside(experiment, rank, costs, batch)
        for rank, costs in zip(chains[0], worst, strict=True)
    ]
    ranks = _ranks(experiment, chains[0], worst, beside, batch)
    alone = pipeline_time(free(ranks), many, strategy.schedule, chunks)
    talking = pipeline_time(ranks, many, strategy.schedule, chunks)
    mean = 1 / len(worst)
    every = [cost for rank in worst for cost in rank]
    forward, backward, recomputation = (
        many * mean * sum(getattr(cost, name) for cost in every)
        for name in ("forward", "backward", "recomputation")
    )
    messages, exposed = _of_passes(every, beside, many * mean)
    messages["pipeline"] += _sent(experiment, chains[0], batch).times(2 * many * mean)
    exposed["pipeline"] += talking - alone
    inside = forward + backward + recomputation + sum(exposed.values()) - exposed["pipeline"]
    bubble = alone - inside if size.pipeline > 1 else 0.0
    update = scale * max(_update(experiment, rank_model(rank)) for rank in chains[0])
    for kind, each in (
        ("offload", _moved_in_update(experiment, chains[0], worst, batch, update)),
        ("data", _gradients(experiment, chains[0], worst, ranks)),
        ("pipeline", _tables(experiment, chains[0])),
    ):
        messages[kind] += each.cost
        exposed[kind] += each.exposed
    busy = (sum(c.forward + c.backward + c.recomputation for c in rank) for rank in worst)
    slowest = stragglers.slowest(experiment.devices, experiment.machine.jitter)
    waiting = (slowest - 1) * (many * max(busy) + update)
    return Step(
        forward, backward + recomputation, recomputation, update, waiting, messages, exposed, bubble
    )


def _of_passes(
    every: list[StageCost], beside: Any, times: float
) -> tuple[dict[str, Cost], dict[str, float]]:
    """Return the messages of `times` passes through all stages, and their exposed seconds, by kind."""
    messages, exposed = dict.fromkeys(KINDS, groups.NOTHING), dict.fromkeys(KINDS, 0.0)
    for cost in every:
        for part in (cost.forward_messages, cost.backward_messages):
            for kind, price in part.items():
                messages[kind] += price.times(times)
                exposed[kind] += times * price.total
        for kind, price in cost.hidden_messages.items():
            messages[kind] += price.times(times)
    for kind, each in ((kind, each) for rank in beside for kind, both in rank for each in both):
        messages[kind] += each.cost.times(times)
        exposed[kind] += times * each.exposed
    return messages, exposed


@lru_cache(maxsize=256)
def rank_model(held: tuple[Part, ...]) -> Model:
    """Return all chunks of a rank as one sequence of layers."""
    first = held[0].model
    if len(held) == 1:
        return first
    layers = tuple(layer for part in held for layer in part.model.layers)
    return Model(f"{first.name} and more", layers, first.input_shape)


def offloading(experiment: Experiment, scale: Any = 1.0) -> offload.Need:
    """Return the required bandwidth of the rank with most offload traffic; scalar experiments that offload."""
    batch = experiment.strategy.batch / int(experiment.strategy.microbatches)
    found = []
    for held in rank_parts(experiment)[0]:
        costs = [stage_cost(experiment, part, batch, scale) for part in held]
        passes = sum(float(c.ahead) for c in costs), sum(float(c.back) for c in costs)
        update = float(scale * _update(experiment, rank_model(held)))
        found.append(offload.need(experiment, _away(experiment, held, batch), passes, update))
    return max(found, key=lambda need: need.required)


def _beside(
    experiment: Experiment, held: tuple[Part, ...], costs: list[StageCost], batch: float
) -> list[tuple[str, tuple[Exchange, Exchange]]]:
    """Return by kind what overlaps the forward and the backward pass of each microbatch."""
    found = [("data", sharding.with_each_microbatch(experiment, held, costs))]
    if experiment.strategy.offload != "none":
        away, way = _away(experiment, held, batch), offload_link(experiment)
        ahead, back = (float(sum(getattr(c, name) for c in costs)) for name in ("ahead", "back"))
        there = offload.in_a_pass(way, away.forward_out, away.forward_in, ahead)
        home = offload.in_a_pass(way, away.backward_out, away.backward_in, back)
        found.append(("offload", (there, home)))
    return found


def _away(experiment: Experiment, held: tuple[Part, ...], batch: float) -> OffloadTraffic:
    strategy = experiment.strategy
    size = compute.BYTES[strategy.precision]
    kept = batch * sum(stored_bytes(part, size, strategy.recompute, True) for part in held)
    return offload_traffic(experiment, rank_model(held).parameters, kept)


def _moved_in_update(
    experiment: Experiment, chain: Chain, costs: list[list[StageCost]], batch: float, update: float
) -> Exchange:
    """Return the exchange in the update of the rank that moves most."""
    if experiment.strategy.offload != "all":
        return sharding.NONE
    way = offload_link(experiment)
    passes = [
        offload.with_the_update(
            way, _away(experiment, held, batch), float(sum(c.back for c in rank)), update
        )
        for held, rank in zip(chain, costs, strict=True)
    ]
    return max(passes, key=lambda one: one.exposed)


def _ranks(
    experiment: Experiment,
    chain: Chain,
    costs: list[list[StageCost]],
    beside: list[list[tuple[str, tuple[Exchange, Exchange]]]],
    batch: float,
) -> Ranks:
    """Return the times of a microbatch on each rank of a pipeline, and between them."""
    ahead, back = (
        [
            sum(getattr(c, name) for c in rank) + sum(both[at].exposed for _, both in others)
            for rank, others in zip(costs, beside, strict=True)
        ]
        for at, name in enumerate(("ahead", "back"))
    )
    hops = [_hop(experiment, chain, rank, batch) for rank in range(len(chain))]
    latency = np.array([float(hop.total) for hop in hops[:-1]])
    transfer = np.array([float(hop.bandwidth) for hop in hops[:-1]])
    wrap = float(hops[-1].total) if int(experiment.strategy.chunks) > 1 else 0.0
    return Ranks(np.array(ahead, dtype=float), np.array(back, dtype=float), latency, transfer, wrap)


def _hop(experiment: Experiment, chain: Chain, rank: int, batch: float) -> Cost:
    """Return the cost of the message from a rank of a pipeline to the next: the largest of its chunks."""
    size = batch * compute.BYTES[experiment.strategy.precision]
    most = max(part.elements(part.sends) for part in chain[rank])
    return _wire(experiment, rank, (rank + 1) % len(chain)).cost(most * size)


def _wire(experiment: Experiment, one: int, other: int) -> groups.Wire:
    apart = stride(experiment, "pipeline")
    return groups.wire(experiment, one * apart, other * apart, apart)


def _sent(experiment: Experiment, chain: Chain, batch: float) -> Cost:
    """Return the cost of all messages between stages in one direction, for a microbatch."""
    total = groups.NOTHING
    size = batch * compute.BYTES[experiment.strategy.precision]
    for rank, held in enumerate(chain):
        way = _wire(experiment, rank, (rank + 1) % len(chain))
        for part in held:
            elements = part.elements(part.sends)
            if elements:
                total += way.cost(elements * size)
    return total


def _gradients(
    experiment: Experiment, chain: Chain, costs: list[list[StageCost]], ranks: Ranks
) -> Exchange:
    """Return cost and exposed seconds of the sums over data.

    A rank exchanges in its last backward pass, and while the stages before it still have theirs. Weights are
    handed out after the update, which waits for all.
    """
    total, late, handed = groups.NOTHING, 0.0, 0.0
    chunks = int(experiment.strategy.chunks)
    spare = np.concatenate([[0.0], np.cumsum(ranks.backward[:-1] / chunks + ranks.latency)])
    for rank, held in enumerate(chain):
        model = rank_model(held)
        last = sharding.with_the_last(experiment, model, costs[rank], float(ranks.backward[rank]))
        after = handed_out(experiment, held)
        total += last.cost + after
        late = max(late, last.exposed - float(spare[rank]))
        handed = max(handed, float(after.total))
    return Exchange(total.times(1 / len(chain)), late + handed)


def _tables(experiment: Experiment, chain: Chain) -> Exchange:
    """Return cost and exposed seconds of summing the gradients of tables that two stages share."""
    total, late = groups.NOTHING, 0.0
    size = compute.BYTES[experiment.strategy.precision]
    owners = [(part, rank) for rank, held in enumerate(chain) for part in held if part.shared]
    for part, rank in owners:
        for layer in part.model.layers:
            stages = part.shared.get(layer.name, ())
            others = sorted({stage % len(chain) for stage in stages} - {rank})
            for other in others:
                way = _wire(experiment, min(rank, other), max(rank, other))
                cost = way.cost(layer.parameters * size)  # both ways at once
                total, late = total + cost, max(late, cost.total)
    return Exchange(total.times(1 / len(chain)), late)


def _update(experiment: Experiment, model: Model) -> float:
    """Return the seconds of a rank's update, by the roofline: of its part if replicas share the state."""
    strategy = experiment.strategy
    seconds = compute.update_time(model, experiment.machine.device, strategy.optimizer)
    return float(seconds / (sizes(experiment).data if strategy.zero else 1))
