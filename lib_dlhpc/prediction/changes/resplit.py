"""Another degree of one way to split a network on the same devices, or another batch: what must be set with it.

The explorer's controls, its advice and sweeps use this, so what is advised, or swept, is what a click gives.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

from lib_dlhpc.spec.experiment import Experiment

BATCH, MICROBATCHES = "strategy.batch", "strategy.microbatches"
DEGREES = ("strategy.tensor", "strategy.pipeline", "strategy.spatial", "strategy.context")
APART = {  # degrees that cannot be together
    "strategy.tensor": ("strategy.spatial",),
    "strategy.spatial": ("strategy.tensor", "strategy.context"),
    "strategy.context": ("strategy.spatial",),
}
NO_PIPELINE = {"strategy.schedule": "1f1b", "strategy.chunks": 1}


def resplit(e: Experiment, field: str, value: int) -> dict[str, Any]:
    """Return what must be set where `field`, one of DEGREES, becomes `value`.

    Keeps the global batch and the samples of a microbatch where they divide; drops what cannot be together.
    """
    s = e.strategy
    degrees = {key: degree(e, key) for key in DEGREES} | {field: value}
    if value > 1:
        degrees |= dict.fromkeys(APART.get(field, ()), 1)
    tensor, pipeline = degrees["strategy.tensor"], degrees["strategy.pipeline"]
    batch = max(1, int(s.batch) * prod(degrees.values()) // int(s.replica))
    many = max(1, batch // samples(e))
    if pipeline > 1 and s.pipeline == 1 and s.microbatches == 1:
        many = min(batch, 4 * pipeline)  # a pipeline of one microbatch is all bubble
    if pipeline > 1 and s.schedule == "interleaved":
        many = interleavable(many, pipeline)
    found: dict[str, Any] = {**degrees, BATCH: max(batch, many), MICROBATCHES: many}
    if pipeline == 1 or (s.mirrored and not fills_both_ends(many, pipeline)):
        found |= NO_PIPELINE
    if tensor == 1:
        found["strategy.sequence_parallel"] = False
    if s.data:
        found["strategy.data"] = 0
    if s.lora and tensor > 1:
        found["strategy.lora"] = 0
    del found[field]
    return found


def of_batch(e: Experiment, batch: int) -> dict[str, Any]:
    """Return what must be set where a device has a batch of `batch`: microbatches of as many samples as before."""
    s = e.strategy
    if s.microbatches == 1:
        return {}
    many = max(1, batch // samples(e))
    if s.schedule == "interleaved":
        many = interleavable(many, s.pipeline)
    few = NO_PIPELINE if s.mirrored and not fills_both_ends(many, s.pipeline) else {}
    return {MICROBATCHES: many, **few}


def beside(e: Experiment, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a batch in `setting` moves along; a value that is no number is left to the reader of the fields."""
    batch = setting.get(BATCH)
    if type(batch) is not int or batch < 1 or MICROBATCHES in setting:
        return {}
    return of_batch(e, batch)


def degree(e: Experiment, field: str) -> int:
    """Return the present degree of one of DEGREES."""
    return int(getattr(e.strategy, field.removeprefix("strategy.")))


def samples(e: Experiment) -> int:
    """Return the samples of a microbatch."""
    return max(1, int(e.strategy.batch) // int(e.strategy.microbatches))


def interleavable(many: Any, stages: Any) -> int:
    """Return the next number of microbatches that an interleaved pipeline can have."""
    return -(-int(many) // int(stages)) * int(stages)


def fills_both_ends(many: Any, stages: Any) -> bool:
    """Return whether a pipeline of these stages can be a DualPipe with this many microbatches."""
    return int(stages) % 2 == 0 and int(many) % 2 == 0 and int(many) >= 2 * int(stages)
