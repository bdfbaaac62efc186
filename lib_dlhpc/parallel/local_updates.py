"""Local updates: each rank updates its own weights, and all ranks average them every H steps.

Nothing hides the exchange: the weights are known only after the last update. An outer optimizer may update the average
once more, which counts as exchange. Sources: Lin et al. 2020, "Don't use large mini-batches, use local SGD"; Douillard
et al. 2023, "DiLoCo".
"""

from collections.abc import Sequence
from dataclasses import replace

from lib_dlhpc.costs.outer_optimizer import has_outer, outer_time
from lib_dlhpc.parallel import offload
from lib_dlhpc.parallel.data_parallel import STREAM
from lib_dlhpc.program import Instruction, Program, Transfer, Update, Wait
from lib_dlhpc.spec.experiment import Experiment


def averaged(
    experiment: Experiment, update: Update, buckets: Sequence[Instruction]
) -> list[Instruction]:
    """Return the end of a step after which the weights are averaged; buckets: the collectives that average them."""
    outer: list[Instruction] = []
    if has_outer(experiment):
        seconds = float(outer_time(experiment))
        outer = [Transfer("data", STREAM, seconds, 0.0, label="outer update")]
    moved = Wait("offload", offload.STREAM, "", offload.LABEL)
    return [update, moved, *buckets, *outer, Wait("data", STREAM, "", "the average")]


def cycle(experiment: Experiment, averaging: Program) -> tuple[Program, ...]:
    """Return the programs of the steps up to an average, whose own is `averaging`."""
    alone = replace(averaging, end=averaging.end[:2])  # the update, and what it has offloaded
    return (alone,) * (int(experiment.strategy.local_steps) - 1) + (averaging,)
