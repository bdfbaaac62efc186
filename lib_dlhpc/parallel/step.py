"""program(experiment, scale): the program of a training step, all passes in order; steps: of several in turn.

1. The parts of each rank of a pipeline (layout), layer after layer (layers.py), with recomputation (_computed).
2. What replicas exchange within the passes: PASSES, one after another, each for one kind of parallelism (_passes).
3. Casts and offloading (_rank_passes); prices on the machine (_stage); messages to the next stage (_linked).
4. What follows the last pass: the rest of the exchange, the update, all-gathers of updated weights (_end).

Equal ranks have the same objects: thousands cost as much as their kinds.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np

from lib_dlhpc.costs import groups, roofline
from lib_dlhpc.costs.compression import applied_rule
from lib_dlhpc.costs.instruction_prices import (
    NOTHING_BESIDE,
    CollectivePrices,
    PartPrices,
    collective_prices,
    part_prices,
)
from lib_dlhpc.costs.low_precision import casts_each_pass
from lib_dlhpc.costs.overlapped_prices import LEFT, overlapped_prices
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import Part, folded, mean_shards, representative, represented, sizes
from lib_dlhpc.parallel import (
    calls,
    casts,
    compression,
    data_parallel,
    local_updates,
    low_rank,
    muon,
    offload,
    pipeline,
    zero,
)
from lib_dlhpc.parallel.async_tp import cut_into_pieces
from lib_dlhpc.parallel.data_parallel import exchange_gradients, exchange_key
from lib_dlhpc.parallel.groups import groups_of, groups_of_stages, in_step
from lib_dlhpc.parallel.layers import layer_by_layer, sharing
from lib_dlhpc.parallel.overlapped_passes import hides_exchanges, overlapped, overlaps_passes
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.parallel.recomputation import recompute
from lib_dlhpc.parallel.shared_links import above, lines
from lib_dlhpc.parallel.tensor_lists import copied, copied_after_update, copies
from lib_dlhpc.parallel.zero import shard
from lib_dlhpc.parallel.zero_bubble import split_backward
from lib_dlhpc.program import (
    Barrier,
    Block,
    Chunk,
    Instruction,
    Prices,
    Program,
    Template,
    Update,
    Wait,
)
from lib_dlhpc.program.pass_contention import Message
from lib_dlhpc.spec.experiment import Experiment

Made = TypeVar("Made")
KINDS = {
    "tensor": "tensor exchange",
    "context": "context exchange",
    "experts": "expert exchange",
    "halo": "halo exchange",
    "pipeline": "messages between stages",
    "data": "weights and gradients",
    "offload": "offloaded",
}
# Step passes, in order, after recomputation; each changes the passes of one part.
PASSES = (exchange_gradients, split_backward, shard, cut_into_pieces)


def program(experiment: Experiment, scale: Any = 1.0, samples: Any = None) -> Program:
    """Return the program of a scalar experiment; compute takes `scale` times the roofline.

    samples: those of a microbatch, if they are others; with an array of them, (lanes,), prices are of each
    (program/lanes.py). Raises SpecError where the network cannot be split so.
    """
    experiment = folded(experiment)
    size = sizes(experiment)
    if samples is None:
        samples = float(experiment.strategy.batch / experiment.strategy.microbatches)
    # Ranks of a tensor group have equal parts but for an element; those in space differ at the edges.
    chains = [represented(experiment, space) for space in range(size.spatial)]
    placed = groups_of_stages(experiment, chains[0])
    priced = {id(on): collective_prices(experiment, on, samples) for on in placed}
    variants = [[*parts] for parts in zip(*chains, strict=True)]  # of each stage, by place in space
    keys = [(*map(id, (*held, on)),) for held, on in zip(variants, placed, strict=True)]
    distinct = dict(zip(keys, zip(variants, placed, strict=True), strict=True))
    made = {
        key: _stage(experiment, held, scale, priced[id(on)]) for key, (held, on) in distinct.items()
    }
    stages = _linked(experiment, [made[key] for key in keys])
    return Program(
        pipeline.pipeline_of(experiment),
        tuple(stages),
        _end(experiment, [*chains[0]], scale),
        groups_of(experiment),
        (size.data, size.spatial, size.tensor),
        in_step(experiment),
        KINDS,
        "pipeline",
        lines(experiment),
        above(experiment),
    )


def steps(experiment: Experiment, scale: Any = 1.0) -> tuple[Program, ...]:
    """Return the programs of a run's steps, which take turns; with synchronous updates there is one."""
    last = program(experiment, scale)
    return (
        local_updates.cycle(experiment, last) if experiment.strategy.update == "local" else (last,)
    )


def _keyed(
    experiment: Experiment, held: tuple[Part, ...]
) -> Keyed[tuple[Experiment, tuple[Part, ...]]]:
    """Return the parts of a rank, with what their instructions depend on as the key."""
    s = experiment.strategy
    return Keyed(
        (experiment, held),
        *exchange_key(experiment, held),
        *(s.recompute, s.expert_wire, s.expert_exchange, s.tensor_overlap, s.splits_backward),
        *map(int, (s.context, s.tensor_pieces, sharing(experiment).nodes)),
    )


@lru_cache(maxsize=1024)
def _computed(key: Keyed[tuple[Experiment, Part]]) -> Passes:
    """Return the passes of a part with recomputation, before replicas exchange anything."""
    experiment, part = key.value
    passes = layer_by_layer(experiment, part)
    recompute(experiment, (part,), passes)
    return passes


@lru_cache(maxsize=4096)  # all cuts of a network, with all ways to shard and to recompute
def _passes(key: Keyed[tuple[Experiment, tuple[Part, ...]]]) -> tuple[Passes, ...]:
    """Return the passes of all parts of a rank, but for what depends on the machine."""
    (experiment, held), chunks = key.value, []
    s = experiment.strategy
    how = (s.recompute, *sharing(experiment), int(s.context), bool(experiment.overlap))
    for chunk, own in enumerate(held):
        part = representative(experiment.model, own)
        passes = _computed(Keyed((experiment, part), id(part), *how)).copy(chunk)
        for step_pass in PASSES:
            step_pass(experiment, held, passes)
        chunks.append(passes)
    return tuple(chunks)


def _rank_passes(experiment: Experiment, held: tuple[Part, ...]) -> tuple[Passes, ...]:
    """Return the passes of all parts of a rank."""
    passes = casts.cast(experiment, _passes(_keyed(experiment, held)))
    return offload.offloaded(experiment, held, passes)


def _after(
    experiment: Experiment, held: tuple[Part, ...]
) -> tuple[list[Instruction], list[Instruction]]:
    """Return the buckets of a rank that are summed after its passes, and those gathered after its update."""
    return _buckets_after(Keyed((experiment, held), *exchange_key(experiment, held)))


@lru_cache(maxsize=4096)
def _buckets_after(
    key: Keyed[tuple[Experiment, tuple[Part, ...]]],
) -> tuple[list[Instruction], list[Instruction]]:
    return data_parallel.remaining(*key.value), zero.gathered_after_update(*key.value)


def _stage(
    experiment: Experiment, held: list[tuple[Part, ...]], scale: Any, collectives: CollectivePrices
) -> tuple[Chunk, ...]:
    """Return the chunks of a stage, without links; held: the parts of its ranks, one entry for each variant."""
    made = [_rank_passes(experiment, parts) for parts in held]
    chunks = []
    for chunk in range(len(held[0])):
        variants = [passes[chunk] for passes in made]
        prices: tuple[Prices, ...] = tuple(
            part_prices(
                *(experiment, variant.part.model, scale, collectives),
                _exchanged(experiment, variant, collectives),
                beside=_beside(experiment, variant),
            )
            for variant in variants
        )
        held_parts = (variant.part for variant in variants)
        sent = tuple(collectives.sample * part.elements(part.sends) for part in held_parts)
        chunks.append(
            Chunk(
                _block(tuple(variant.forward_pass for variant in variants), prices),
                _block(tuple(variant.backward_pass for variant in variants), prices),
                _block(tuple(variant.last_pass for variant in variants), prices),
                tuple(variants[0].hidden),
                groups.NOTHING,
                sent,
                _block(tuple(variant.weights_pass for variant in variants), prices)
                if variants[0].weights is not None
                else None,
                _block(tuple(variant.first_pass for variant in variants), prices)
                if variants[0].first is not None
                else None,
                _overlapped(experiment, made, chunk, scale, collectives),
            )
        )
    return tuple(chunks)


def _beside(experiment: Experiment, passes: Passes) -> tuple[Any, Any]:
    """Return the seconds of each layer, forward and backward, in which the framework lets nothing else run."""
    ahead, back = copied(experiment, passes) if copies(experiment) else NOTHING_BESIDE
    called = calls.called(experiment, passes)
    return ahead + called, back + called


def _overlapped(
    experiment: Experiment,
    made: list[tuple[Passes, ...]],
    chunk: int,
    scale: Any,
    collectives: CollectivePrices,
) -> Block | None:
    """Return the forward pass of a chunk with a backward pass of the other chunk, where they overlap."""
    if not overlaps_passes(experiment):
        return None
    pairs = [(passes[chunk], passes[1 - chunk]) for passes in made]
    templates = tuple(overlapped(*pair) for pair in pairs)
    left = LEFT if any(map(hides_exchanges, templates)) else 1.0

    def priced(each: Passes) -> PartPrices:
        exchanged = _exchanged(experiment, each, collectives)
        return part_prices(experiment, each.part.model, scale, collectives, exchanged, left)

    prices: tuple[Prices, ...] = tuple(overlapped_prices(*map(priced, pair)) for pair in pairs)
    return _block(templates, prices, len(pairs[0][0].part.model.layers))


def _block(
    variants: tuple[Template, ...],
    prices: tuple[Prices, ...],
    ahead: int = 0,
    message: Message | None = None,
) -> Block:
    """Return a pass; equal ones with equal prices are one."""
    sent = message and (np.asarray(message.seconds, np.float64).tobytes(), message.slower)
    fields = variants, prices, ahead, message
    return _blocks(Keyed(fields, *map(id, variants), *map(id, prices), ahead, sent))


@lru_cache(maxsize=8192)
def _blocks(
    key: Keyed[tuple[tuple[Template, ...], tuple[Prices, ...], int, Message | None]],
) -> Block:
    return Block(*key.value)


def _exchanged(experiment: Experiment, passes: Passes, collectives: CollectivePrices) -> Any:
    """Return the seconds after each layer of a forward pass in collectives on the stream of its computation, and calls.

    They matter where the host issues kernels one by one.
    """
    if not experiment.machine.device.dispatch:
        return 0.0
    found = np.zeros(len(passes.part.model.layers))
    for what, layers in passes.forward_pass.within:
        seconds = np.asarray(collectives.priced(what).seconds)[..., None]
        found = found + seconds * np.bincount(layers, minlength=found.shape[-1])
    return found + calls.called(experiment, passes)


def _linked(experiment: Experiment, stages: list[tuple[Chunk, ...]]) -> list[tuple[Chunk, ...]]:
    """Return the chunks of each stage with what their messages to the next stage cost; alike ones are the same."""
    known = dict[tuple[int, tuple[groups.Wire, ...]], tuple[Chunk, ...]]()
    again = experiment.strategy.microbatches * experiment.strategy.chunks > 1
    linked = []
    for chunks, ways in zip(stages, pipeline.ways(experiment), strict=True):
        key = id(chunks), ways
        if key not in known:
            known[key] = tuple(
                _sending(chunk, way, again) for chunk, way in zip(chunks, ways, strict=True)
            )
        linked.append(known[key])
    return linked


def _sending(chunk: Chunk, way: groups.Wire, again: bool) -> Chunk:
    """Return a chunk with its messages; again: whether a stage continues with another pass while it sends."""
    most = max(chunk.bytes)
    if not np.any(most):
        return chunk
    uses = (0.0, 1 / way.slower, float(way.slower > 1)) if way.between else (1.0, 0.0, 0.0)
    sending = replace(chunk, sends=way.cost(most), uses=uses)
    if not (again and way.between):
        return sending
    message = Message(sending.sends.bandwidth, way.slower)
    return replace(
        sending,
        forward=_behind(chunk.forward, message),
        backward=_behind(chunk.backward, message),
        last=_behind(chunk.last, message) if _waits(chunk.last) else chunk.last,
        weights=chunk.weights and _behind(chunk.weights, message),
        first=chunk.first and _behind(chunk.first, message),
    )


def _waits(last: Block) -> bool:
    """Return whether a last pass exchanges more than gradients; gradients alone wait for the message.

    See program/gradient_contention.py.
    """
    shape = last.variants[0].shape
    return (
        bool(shape.numbers)
        or len(shape.streams) > 1
        or any(isinstance(instruction, Wait) for instruction in shape.compact)
    )


def _behind(block: Block, message: Message) -> Block:
    """Return a pass that begins while a message is on its way, if it exchanges anything."""
    if not any(variant.shape.priced for variant in block.variants):
        return block
    return _block(block.variants, block.prices, block.ahead, message)


def _end(
    experiment: Experiment, held: list[tuple[Part, ...]], scale: Any
) -> tuple[tuple[Instruction | None, ...], ...]:
    """Return what follows the last pass, a row at a time; held: by place in the pipeline."""
    everyone = range(len(held))

    def rows(of_stages: list[list[Instruction]]) -> list[tuple[Instruction | None, ...]]:
        return list(zip_longest(*of_stages))

    def all_do(what: Instruction) -> tuple[Instruction | None, ...]:
        return (what,) * len(held)

    distinct = {id(parts): parts for parts in held}

    def made(rule: Callable[[tuple[Part, ...]], Made]) -> list[Made]:
        """Return what each stage has by a rule; alike stages have the same."""
        known = {key: rule(parts) for key, parts in distinct.items()}
        return [known[id(parts)] for parts in held]

    updates = made(lambda parts: Update(update_time(experiment, parts, scale)))
    remaining = made(lambda parts: _exchange(experiment, parts))
    if experiment.strategy.update == "local":
        every = zip(updates, remaining, strict=True)
        return tuple(rows([local_updates.averaged(experiment, *stage) for stage in every]))
    met = [all_do(Barrier())] if experiment.strategy.is_split else []
    end = rows(remaining)
    end.append(all_do(Wait("data", data_parallel.STREAM, "", "the exchange")))
    for swap in pipeline.swaps(experiment, held):
        end.append(tuple(swap if place in swap.places else None for place in everyone))
    if muon.gathers_momentum(experiment):
        end += rows(made(lambda parts: muon.gathered_momentum(experiment, parts)))
        end.append(all_do(Wait("data", data_parallel.STREAM, "", "the momentum")))
    end += [
        *met,
        tuple(updates),
        all_do(Wait("offload", offload.STREAM, "", offload.LABEL)),
        *rows(made(lambda parts: _after(experiment, parts)[1])),
        all_do(Wait("data", data_parallel.STREAM, "", "the weights")),
        *met,
    ]
    return tuple(end)


def _exchange(experiment: Experiment, held: tuple[Part, ...]) -> list[Instruction]:
    """Return the exchange of gradients, or weights, that follows the passes of a rank."""
    if experiment.training.low_rank:
        return low_rank.factored(experiment, held[0])
    if experiment.compressed:
        return compression.exchanged(experiment, held[0])
    return casts.with_casts(experiment, _after(experiment, held)[0])


def update_time(experiment: Experiment, held: tuple[Part, ...], scale: Any) -> float:
    """Return the seconds of a rank's update; of its share of it where replicas share the state."""
    device, optimizer = experiment.machine.device, applied_rule(experiment)
    models, casts = [part.model for part in held], not casts_each_pass(experiment.strategy)
    seconds = sum(
        roofline.streamed_update_time(model, device, optimizer, casts)
        / mean_shards(experiment, model)
        for model in models
    )
    seconds = scale * (seconds + muon.orthogonalization_time(experiment, held))
    return float(seconds + copied_after_update(experiment, held))
