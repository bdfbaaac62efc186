"""Local updates: each rank updates its own weights, and all ranks average them every H steps.

Nothing hides the exchange: the weights are known only after the last update. Source: Lin et al. 2020, "Don't use
large mini-batches, use local SGD".
"""

from collections.abc import Sequence
from dataclasses import replace

from lib_dlhpc.parallel.data import STREAM
from lib_dlhpc.program import Instruction, Program, Update, Wait
from lib_dlhpc.spec.experiment import Experiment


def averaged(update: Update, buckets: Sequence[Instruction]) -> list[Instruction]:
    """Return the end of a step after which the weights are averaged; buckets: the collectives that average them."""
    return [update, *buckets, Wait("data", STREAM, "", "the average")]


def cycle(experiment: Experiment, averaging: Program) -> tuple[Program, ...]:
    """Return the programs of the steps up to an average, whose own is `averaging`."""
    alone = replace(averaging, end=averaging.end[:1])
    return (alone,) * (int(experiment.strategy.local_steps) - 1) + (averaging,)
