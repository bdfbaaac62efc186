"""Gradients exchanged in another format: each bucket is cast before its exchange, and back after it.

Where replicas shard the sums, these stay as they arrive, also for the sum with other copies of a shard; gradients that
microbatches have added up in the format of the wire are not cast (adds_wide). Casts belong to the exchange: they take
their turn on its stream, and overlap computation as it does.
"""

from collections.abc import Iterable
from dataclasses import replace

from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.wire_format import (
    SCALE_BYTES,
    adds_wide,
    cast_time,
    is_cast,
    is_scaled,
    search_time,
)
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Collective, Instruction, Transfer
from lib_dlhpc.program.instructions import WEIGHTS, WIRE
from lib_dlhpc.spec.experiment import Experiment


def cast(experiment: Experiment, every: tuple[Passes, ...]) -> tuple[Passes, ...]:
    """Return the passes of a rank's parts with the casts of the gradients that they post."""
    if not is_cast(experiment.strategy):
        return every
    return tuple(
        replace(
            passes,
            backward=with_casts(experiment, passes.backward),
            weights=passes.weights and with_casts(experiment, passes.weights),
            last=with_casts(experiment, passes.last),
        )
        for passes in every
    )


def with_casts(experiment: Experiment, instructions: Iterable[Instruction]) -> list[Instruction]:
    """Return instructions with the casts of the gradients that they post."""
    if adds_wide(experiment.strategy):
        return list(instructions)
    element = roofline.BYTES[experiment.strategy.precision]
    emitted: list[Instruction] = []
    for op in instructions:
        if isinstance(op, Collective) and op.content == WIRE and op.group != "copies":
            size = op.elements * element
            if is_scaled(experiment.strategy):
                emitted += _scale(op, float(search_time(experiment, size)), element)
            seconds = float(cast_time(experiment, size))
            fields = ("data", op.stream, seconds, 0.0)
            emitted.append(Transfer(*fields, label=f"cast {op.label}"))
            emitted.append(op)
            if op.goal == "allreduce":
                emitted.append(Transfer(*fields, label=f"cast back {op.label}"))
        else:
            emitted.append(op)
    return emitted


def _scale(bucket: Collective, seconds: float, element: int) -> list[Instruction]:
    """Return what the ranks do to agree on the largest magnitude of a bucket, in `seconds` and a collective."""
    fields = (bucket.kind, bucket.group, "allreduce", SCALE_BYTES / element, WEIGHTS, bucket.stream)
    scale = Collective(*fields, label=f"scale {bucket.label}", ranked=bucket.ranked)
    return [Transfer("data", bucket.stream, seconds, 0.0, label=f"search {bucket.label}"), scale]
