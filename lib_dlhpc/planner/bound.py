"""A lower bound of the step of each combination, on arrays; it is never above the prediction.

The layers of the whole network take c s for a microbatch, forward and backward, with recomputation and what is
exchanged within a pass: priced once for each way to split layers, by the same functions as a prediction. Of p stages
the busiest does at least m c / p. In GPipe and 1F1B stage k cannot start before the stages before it have done a
forward pass, nor end after their last backward pass, so that for any cut

    T >= max over k of (sum of c_j, j < k) + m c_k  >=  c / (1 - (1 - 1/m)^p)

with equality where the terms are equal. Then follow the update and, with ZeRO 1 and 2, the all-gather of the weights;
with ZeRO 3 each layer's weights are gathered twice a microbatch. The fullest rank holds no less than the mean stage.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute, stragglers
from lib_dlhpc.costs.groups import collective, spread
from lib_dlhpc.costs.state import MASTER_BYTES
from lib_dlhpc.errors import SpecError
from lib_dlhpc.parallel import program
from lib_dlhpc.planner.space import Space
from lib_dlhpc.prediction.step import compute_scale
from lib_dlhpc.program import messages_of, work_of
from lib_dlhpc.spec.experiment import Experiment

Floats = NDArray[np.float64]
# What does not change what the layers of an unsplit pipeline take for a microbatch.
OUTSIDE = ("pipeline", "microbatches", "schedule", "chunks", "zero", "shards", "offload", "data")


@dataclass(frozen=True)
class Bound:
    """Lower bounds of each combination: s of a step, B of state on the fullest device."""

    step: Floats
    state: Floats


def bound(experiment: Experiment, combinations: Space) -> Bound:
    """Return the bounds of the combinations of a scalar experiment."""
    c = combinations.columns
    work, talk, update, weights = _unsplit(experiment, combinations)
    m, p = c["microbatches"].astype(float), c["pipeline"].astype(float)
    slow = float(stragglers.slowest(experiment.devices, experiment.machine.jitter)) - 1
    both = work + talk
    busy = m * both / p
    full = np.isin(c["schedule"], ("gpipe", "1f1b"))
    filled = both / -np.expm1(p * np.log1p(-1 / np.maximum(m, 1 + 1e-9)))
    step = np.where(full, np.maximum(busy, filled), busy) + slow * m * work / p
    sharded = np.where(c["zero"] > 0, c["data"] * c["context"], 1)
    if "shards" in c:
        sharded = np.where(c["shards"] > 0, c["shards"], sharded)
    gathered = _gathered(experiment, combinations, weights)
    step = step + update / p / sharded + np.where(np.isin(c["zero"], (1, 2)), gathered, 0.0)
    step = np.where(c["zero"] == 3, np.maximum(step, 2 * m * gathered), step)
    return Bound(step * (1 - 1e-12), _state(experiment, combinations, weights, sharded))


def _unsplit(experiment: Experiment, combinations: Space) -> tuple[Floats, ...]:
    """Return s of computation and exchanges of a microbatch, s of an update, and weights of the unsplit pipeline."""
    c = combinations.columns
    names = [name for name in c if name not in (*OUTSIDE, "batch")]
    samples = c["batch"] // c["microbatches"]
    keys = list(zip(samples.tolist(), *(c[name].tolist() for name in names), strict=True))
    known = {
        key: _of_microbatch(experiment, key[0], dict(zip(names, key[1:], strict=True)))
        for key in set(keys)
    }
    return tuple(np.array([known[key] for key in keys]).reshape(-1, 4).T)


def _of_microbatch(
    experiment: Experiment, samples: int, fields: dict[str, object]
) -> tuple[float, ...]:
    plain: dict[str, object] = {"pipeline": 1, "microbatches": 1, "schedule": "1f1b", "chunks": 1}
    plain |= {"zero": 0, "shards": 0, "offload": "none", "data": 0, "batch": samples}
    strategy = replace(experiment.strategy, **{**plain, **fields})  # type: ignore[arg-type]
    one = replace(experiment, strategy=strategy)
    try:
        scale = compute_scale(one)
        step = program(one, scale)
    except SpecError:  # the prediction raises it again, where it is counted
        return 0.0, 0.0, 0.0, 0.0
    work = work_of(step)
    seconds = (work.forward + work.backward + work.recomputation).min()
    exchanged = sum(messages_of(step)[1].values())
    weights = float(step.stages[0][0].forward.prices[0].weights.sum())
    return float(seconds), float(exchanged), float(work.update.min()), weights


def _gathered(experiment: Experiment, combinations: Space, weights: Floats) -> Floats:
    """Return s to gather the weights of a mean stage over all replicas; 0 where it is over some of them."""
    c, found = combinations.columns, np.zeros(len(combinations))
    if "shards" in c or "nodes" in c or "allreduce" in c or "precision" in c:
        return found
    size = compute.BYTES[experiment.strategy.precision]
    keys = list(
        zip(
            (c["data"] * c["context"]).tolist(),
            (c["tensor"] * c["spatial"]).tolist(),
            (weights / c["pipeline"]).tolist(),
            strict=True,
        )
    )
    known = {
        (data, apart, held): collective(
            "allgather",
            held * size,
            spread(experiment, data, apart),
            1,
            experiment.strategy.allreduce,
        ).total
        for data, apart, held in set(keys)
        if data > 1
    }
    return np.array([float(known.get(key, 0.0)) for key in keys])


def _state(experiment: Experiment, combinations: Space, weights: Floats, sharded: Floats) -> Floats:
    """Return the bytes of weights, gradients and optimizer state of a mean stage."""
    c, strategy = combinations.columns, experiment.strategy
    if "precision" in c or np.any(c.get("offload", np.array(strategy.offload)) == "all"):
        return np.zeros(len(combinations))
    size = compute.BYTES[strategy.precision]
    master = MASTER_BYTES * (strategy.precision in compute.MIXED)
    optimizer = compute.STATE[strategy.optimizer] * max(size, MASTER_BYTES)
    zero, held = c["zero"], weights / c["pipeline"]
    each = ((size, 3), (size, 2), (master + optimizer, 1))
    parts = sum(count / np.where(zero >= level, sharded, 1) for count, level in each)
    total: Floats = held * parts + float(experiment.machine.device.reserved_memory)
    return total
