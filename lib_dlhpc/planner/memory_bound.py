"""A lower bound of the memory of each combination, on arrays; it is never above the prediction.

The fullest rank holds no less than any mean of all. Stages have A B of state between them, and store B B for a
microbatch, of which the k-th keeps n_k when it begins its first backward pass; whatever their cut, with weights of
1 / (a + n_k) and any a >= 0

    memory >= [A / (a + max n) + B min n / (a + min n)] / sum of 1 / (a + n_k)
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.model_state import MASTER_BYTES
from lib_dlhpc.planner.search_space import Columns, Space
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import PYTORCH


def of_state(
    experiment: Experiment, combinations: Space, weights: Floats, sharded: Floats
) -> Floats:
    """Return the bytes of weights, gradients and optimizer state of all stages.

    weights: but for those of experts that replicas share, and of these, (2, combinations). sharded: over how many
    replicas the state is sharded; that of experts is over those that have the same ones.
    """
    c, strategy = combinations.columns, experiment.strategy
    if np.any(c.get("offload", np.array(strategy.offload)) == "all"):
        return np.zeros(len(combinations))
    size = roofline.BYTES[strategy.precision]
    master = MASTER_BYTES * (strategy.precision in roofline.MIXED)
    optimizer = roofline.STATE[strategy.optimizer] * max(size, MASTER_BYTES)
    # With FSDP, interleaved stages have gradients one after the other.
    part = strategy.pipeline_runtime == PYTORCH
    gradients = np.where(part & combinations.has("schedule", "interleaved"), 0, size)
    each = ((size, 3), (gradients, 2), (master + optimizer, 1))
    over = np.stack([sharded, np.maximum(sharded / experts_of(experiment, c), 1)])
    parts = sum(count / np.where(c["zero"] >= level, over, 1) for count, level in each)
    found: Floats = (weights * parts).sum(axis=0)
    return found


def experts_of(experiment: Experiment, c: Columns) -> NDArray[np.int64]:
    """Return over how many replicas each combination shares its experts."""
    return c.get("experts", np.array(int(experiment.strategy.experts)))


def with_activations(
    experiment: Experiment, combinations: Space, stored: Floats, state: Floats
) -> Floats:
    """Return the least bytes of state and of what is stored for backward passes on the fullest of all stages.

    stored: B of a sample on all stages; state: B of all stages.
    """
    c = combinations.columns
    each = of_microbatch(experiment, combinations, stored)
    rows, kind = combinations.kinds(*(names := ("pipeline", "microbatches", "schedule")))
    ways = zip(*(c[name][rows].tolist() for name in names), strict=True)
    of_state, of_stored = np.moveaxis(np.array([_means(*way) for way in ways]), 0, 2)[..., kind]
    least: Floats = (of_state * state + of_stored * each).max(axis=0)
    return least


def of_microbatch(experiment: Experiment, combinations: Space, stored: Floats) -> Floats:
    """Return the B that a microbatch stores on the device, of those of a sample."""
    c = combinations.columns
    here = c.get("offload", np.array(experiment.strategy.offload)) == "none"
    found: Floats = np.where(here, stored * c["batch"] / c["microbatches"], 0.0)
    return found


@lru_cache(maxsize=4096)
def _means(stages: int, many: int, schedule: str) -> Floats:
    """Return which parts of the state, and of what a microbatch stores, any mean of all stages has, (2, means)."""
    kept = passes_kept(stages, many, schedule)
    beside = np.array([0.0, 1.0, kept.mean(), kept.max()])
    weights = 1 / (beside[:, None] + kept)
    each = np.stack([weights.min(axis=1), (weights * kept).min(axis=1)])
    return each / weights.sum(axis=1)


@lru_cache(maxsize=4096)
def passes_kept(stages: int, many: int, schedule: str) -> Floats:
    """Return of each stage the least number of microbatches that a part of it keeps at its first backward pass."""
    if schedule == "gpipe":
        return np.full(stages, float(many))
    behind = np.arange(stages, 0, -1.0)
    if schedule == "interleaved":  # the last chunk keeps the fewest
        return np.minimum(stages, 2 * behind - 1)
    return np.minimum(many, behind)
