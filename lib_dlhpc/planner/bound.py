"""A lower bound of the step of each combination, on arrays; it is never above the prediction.

The layers of the whole network take c s for a microbatch, forward and backward, with recomputation and what is
exchanged within a pass: priced once for each way to split layers, with all sizes of a microbatch as an array, from the
same program as a prediction. Of p stages the busiest does at least m c / p. In GPipe and 1F1B stage k cannot start
before the stages before it have done a forward pass, nor end after their last backward pass, so that for any cut

    T >= max over k of (sum of c_j, j < k) + m c_k  >=  c / (1 - (1 - 1/m)^p)

with equality where the terms are equal. Replicas exchange gradients of w weights in no less than w e s, where e is what
a weight takes in the longest messages. In GPipe and 1F1B that begins within the last backward pass of a stage, so that
with b s of that pass, and as no mean is above the maximum,

    T >= m c / p - b / p + w e / p

With ZeRO 2 each microbatch exchanges them, after the first forward pass; with ZeRO 3 it also gathers weights twice, on
the same stream. Then follow the update and, with ZeRO 1 and 2, the all-gather of the weights; a gather behind a forward
pass may take no time. The fullest rank holds no less than the mean stage.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import compute, stragglers
from lib_dlhpc.costs.groups import collective, spread
from lib_dlhpc.costs.instruction_prices import collective_cost
from lib_dlhpc.costs.power import clocked, drawn
from lib_dlhpc.costs.state import MASTER_BYTES
from lib_dlhpc.costs.wire_format import is_cast
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import chain
from lib_dlhpc.parallel import program
from lib_dlhpc.planner.space import Space
from lib_dlhpc.prediction.step import compute_scale
from lib_dlhpc.program import Collective, Move, Program, work_of
from lib_dlhpc.program.instructions import SAMPLES
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import FORWARD

Floats = NDArray[np.float64]
LONGEST = 1e15  # B: no message takes less for each byte
# What does not change what the layers of an unsplit pipeline take for a microbatch.
OUTSIDE = (
    *("pipeline", "microbatches", "schedule", "chunks"),
    *("zero", "shards", "gather", "offload", "data", "bucket"),
)


@dataclass(frozen=True)
class Bound:
    """Lower bounds of each combination: s of a step, B of state on the fullest device.

    joules: what the mean device draws above its idle power in the passes of a step, J.
    """

    step: Floats
    state: Floats
    joules: Floats


def bound(experiment: Experiment, combinations: Space) -> Bound:
    """Return the bounds of the combinations of a scalar experiment."""
    c = combinations.columns
    work, talk, update, weights, forward, above = _unsplit(experiment, combinations)
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
    step = np.maximum(step, _exchanged(experiment, combinations, busy, both, forward, weights))
    gathered = _gathered(experiment, combinations, weights)
    behind = c.get("gather", np.array(experiment.strategy.gather)) == FORWARD
    after = np.isin(c["zero"], (1, 2)) & ~behind
    step = step + update / p / sharded + np.where(after, gathered, 0.0)
    step = np.where((c["zero"] == 3) & ~behind, np.maximum(step, 2 * m * gathered), step)
    state = _state(experiment, combinations, weights, sharded)
    return Bound(step * (1 - 1e-12), state, m * above / p * (1 - 1e-12))


def _unsplit(experiment: Experiment, combinations: Space) -> tuple[Floats, ...]:
    """Return s of computation and exchanges of a microbatch, s of an update, weights, s of forward, and J of a
    microbatch above idle power, of the unsplit pipeline."""
    c = combinations.columns
    names = [name for name in c if name not in (*OUTSIDE, "batch")]
    samples, found = c["batch"] // c["microbatches"], np.zeros((6, len(combinations)))
    for rows in _alike([c[name] for name in names]):
        each, place = np.unique(samples[rows], return_inverse=True)
        fields = {name: c[name][rows[0]].item() for name in names}
        found[:, rows] = _of_microbatches(experiment, each, fields)[:, place]
    return tuple(found)


def _alike(columns: Sequence[NDArray[Any]]) -> list[NDArray[np.intp]]:
    """Return the rows of each combination of values that occurs."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values = {*column.tolist()}
        code *= len(values)
        for number, each in enumerate(values):
            code[column == each] += number
    order = np.argsort(code, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(code[order])) + 1)


def _of_microbatches(
    experiment: Experiment, samples: NDArray[np.int64], fields: dict[str, object]
) -> Floats:
    """Return the six of microbatches of so many samples, (6, samples)."""
    plain: dict[str, object] = {"pipeline": 1, "microbatches": 1, "schedule": "1f1b", "chunks": 1}
    plain |= {"zero": 0, "shards": 0, "gather": "usual", "offload": "none", "data": 0}
    found = np.zeros((6, len(samples)))

    def of(batch: int) -> Experiment:
        strategy = replace(experiment.strategy, **{**plain, **fields, "batch": batch})  # type: ignore[arg-type]
        return replace(experiment, strategy=strategy)

    try:
        one = of(int(samples[0]))
        step = program(one)
        # A rate is measured with a batch, a scale is of any.
        many = samples.tolist() if experiment.calibration.rate else samples[:1].tolist()
        scale = np.array([float(compute_scale(of(batch))) for batch in many])
    except SpecError:  # the prediction raises it again, where it is counted
        return found
    passes = _Passes(one, step, samples.astype(float), scale[:, None])
    (found[0], found[4], found[5]), found[1] = passes.work(), passes.exchanged()
    found[2] = scale * work_of(step).update.min()
    found[3] = step.stages[0][0].forward.prices[0].weights.sum()
    return found


class _Passes:
    """An unsplit pipeline's pass forward and backward, for an array of samples; scale: (samples or 1, 1)."""

    def __init__(
        self, experiment: Experiment, step: Program, samples: Floats, scale: Floats
    ) -> None:
        self.experiment, self.step, self.samples, self.scale = experiment, step, samples, scale
        self.chunk = step.stages[0][0]
        self.size = float(compute.BYTES[experiment.strategy.precision])
        self._known: dict[tuple[object, ...], Floats] = {}

    def work(self) -> Floats:
        """Return the least of all variants: s of computation, s of forward alone, J above idle power, (3, samples)."""
        own, limit = self.experiment.machine.device, self.experiment.strategy.power_limit
        device, precision, found = clocked(own, limit), self.experiment.strategy.precision, []
        watts = np.array([drawn(own, limit, *each) for each in np.eye(2)]) - own.idle_power
        for variant, template in enumerate(self.chunk.backward.variants):
            model = chain(self.experiment, variant)[0][0].model
            apart = self._apart(variant, len(model.layers))
            each = compute.layer_activities(model, device, self.samples, precision, apart)
            rows = [
                [self.scale[:, 0] * t.sum(axis=-1) for t in (*one, one[0][:, template.repeated])]
                for one in (*each[:2], compute.total(each))
            ]
            limited, seconds = np.array(rows[:2]), np.array(rows[2])
            joules = np.tensordot(watts, limited.sum(axis=1), 1)
            found.append([seconds.sum(axis=0), seconds[0], joules])
        return np.min(found, axis=0)

    def exchanged(self) -> Floats:
        """Return the seconds of exchanges within the passes of the variant with most."""
        found: Floats = np.zeros(len(self.samples))
        for block in (self.chunk.forward, self.chunk.last):
            found += np.max([self._of(each.messages) for each in block.variants], axis=0)
        return found

    def _of(self, messages: Iterable[tuple[Collective | Move, int]]) -> Floats:
        found = np.zeros(len(self.samples))
        for what, count in messages:
            if isinstance(what, Collective) and not what.stream:
                found += count * self._seconds(what)
        return found

    def _apart(self, variant: int, layers: int) -> Floats:
        """Return the seconds after each layer of a forward pass in exchanges, at a scale of 1, (samples, layers).

        They matter where the host issues kernels one by one.
        """
        if not self.experiment.machine.device.dispatch:
            return np.zeros(1)
        found = np.zeros((len(self.samples), layers))
        for what, after in self.chunk.forward.variants[variant].within:
            found += self._seconds(what)[:, None] * np.bincount(after, minlength=layers)
        return found / np.where(self.scale > 0, self.scale, np.inf)

    def _seconds(self, what: Collective) -> Floats:
        key = what.group, what.goal, what.elements, what.of, what.algorithm
        if key not in self._known:
            fixed = self.chunk.forward.prices[0].bytes
            sent = what.elements * self.samples * self.size if what.of == SAMPLES else fixed(what)
            net = self.step.groups[what.group].network
            cost = collective_cost(what.goal, sent, net, what.algorithm)
            self._known[key] = np.broadcast_to(cost.total, self.samples.shape)
        return self._known[key]


def _exchanged(
    experiment: Experiment,
    combinations: Space,
    busy: Floats,
    both: Floats,
    forward: Floats,
    weights: Floats,
) -> Floats:
    """Return s until the gradients of a mean stage are exchanged; busy: s of its passes, both: of an unsplit one."""
    c, s = combinations.columns, experiment.strategy
    if is_cast(s) or experiment.compressed or s.experts > 1 or "experts" in c:
        return np.zeros(len(combinations))
    p, m, held = c["pipeline"], c["microbatches"], weights / c["pipeline"]
    summed, scattered, gathered = (
        held * _a_weight(experiment, combinations, goal)
        for goal in ("allreduce", "reduce_scatter", "allgather")
    )
    once = busy - (both - forward) / p + np.where(c["zero"] == 0, summed, scattered)
    once = np.where(np.isin(c["schedule"], ("gpipe", "1f1b")), once, 0.0)
    each = np.where(c["zero"] < 2, once, forward / p + m * scattered)
    usual = c.get("gather", np.array(s.gather)) != FORWARD
    return np.where((c["zero"] == 3) & usual, m * (2 * gathered + scattered), each)


def _a_weight(experiment: Experiment, combinations: Space, goal: str) -> Floats:
    """Return s for each weight of a collective over all replicas in the longest messages; 0: it is over some."""
    c, found = combinations.columns, np.zeros(len(combinations))
    if _over_some(experiment, combinations):
        return found
    size, way = compute.BYTES[experiment.strategy.precision], experiment.strategy.allreduce
    many, apart = c["data"] * c["context"], c["tensor"] * c["spatial"]
    for rows in _alike([many, apart]):
        ranks = int(many[rows[0]])
        if ranks > 1:
            net = spread(experiment, ranks, int(apart[rows[0]]))
            found[rows] = size * collective(goal, LONGEST, net, 1, way).total / LONGEST
    return found


def _over_some(experiment: Experiment, combinations: Space) -> bool:
    """Return whether some replicas may exchange in a group of their own, or messages are not known here."""
    unknown = {"shards", "nodes", "allreduce", "precision"} & combinations.columns.keys()
    return bool(unknown or experiment.strategy.shards)


def _gathered(experiment: Experiment, combinations: Space, weights: Floats) -> Floats:
    """Return s to gather the weights of a mean stage over all replicas; 0 where it is over some of them."""
    c, found = combinations.columns, np.zeros(len(combinations))
    if _over_some(experiment, combinations):
        return found
    size, way = compute.BYTES[experiment.strategy.precision], experiment.strategy.allreduce
    many, apart = c["data"] * c["context"], c["tensor"] * c["spatial"]
    for rows in _alike([many, apart]):
        ranks = int(many[rows[0]])
        if ranks > 1:
            held = weights[rows] / c["pipeline"][rows] * size
            net = spread(experiment, ranks, int(apart[rows[0]]))
            found[rows] = collective("allgather", held, net, 1, way).total
    return found


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
