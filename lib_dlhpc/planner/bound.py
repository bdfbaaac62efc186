"""A lower bound of the step of each combination, on arrays; it is never above the prediction.

The layers of the whole network take c s for a microbatch, forward and backward, with recomputation and what is
exchanged within a pass: priced once for each way to split layers, with all sizes of a microbatch as an array, from the
same program as a prediction. Of p stages the busiest does at least m c / p. In GPipe and 1F1B stage k cannot start
before the stages before it have done a forward pass, nor end after their last backward pass, so that for any cut

    T >= max over k of (sum of c_j, j < k) + m c_k  >=  c / (1 - (1 - 1/m)^p)

with equality where the terms are equal; whole blocks may not divide so (block_bound.py). Replicas exchange gradients of
w weights in no less than w e s, where e is what a weight takes in the longest messages. In GPipe and 1F1B that begins
within the last backward pass of a stage, so that with b s of that pass, and as no mean is above the maximum,

    T >= m c / p - b / p + w e / p

Weights of experts that replicas share are exchanged by, and sharded over, those that have the same ones (Rajbhandari et
al. 2022, "DeepSpeed-MoE", section 5.2).

Where microbatches enter from both ends, c is without exchanges of experts, which passes of the two directions may hide
from each other.

With ZeRO 2 each backward pass exchanges them, and with ZeRO 3 each pass gathers weights: a pass takes no less than
either its layers or its messages. Then follow the update and, with ZeRO 1 and 2, the all-gather of the weights; a
gather behind a forward pass may take no time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs import roofline, stragglers
from lib_dlhpc.costs.groups import collective, placements
from lib_dlhpc.costs.segments import cut_within
from lib_dlhpc.costs.wire_format import is_cast
from lib_dlhpc.errors import SpecError
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import cut_points
from lib_dlhpc.parallel import program
from lib_dlhpc.parallel.overlapped_passes import STREAM
from lib_dlhpc.planner.block_bound import Blocks, of_whole_blocks
from lib_dlhpc.planner.cut_bound import ExchangeTimes, of_cuts
from lib_dlhpc.planner.memory_bound import experts_of, of_microbatch, of_state, with_activations
from lib_dlhpc.planner.passes import Layers, Passes
from lib_dlhpc.planner.search_space import Columns, Space, alike, divisors, keyed
from lib_dlhpc.planner.training_runs import samples as samples_of
from lib_dlhpc.prediction.step import compute_scale
from lib_dlhpc.program import work_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import EARLY_STOP, FORWARD, PER_OP

LONGEST = 1e15  # B: no message takes less for each byte
# What does not change what the layers of an unsplit pipeline take for a microbatch.
OUTSIDE = (
    *("pipeline", "microbatches", "schedule", "chunks"),
    *("zero", "shards", "gather", "zero_unit", "offload", "data", "bucket"),
)


@dataclass(frozen=True)
class Bound:
    """Lower bounds of each combination: s of a step, if it fits; B on the fullest device, of state alone and with
    activations.

    joules: what the mean device draws above its idle power in the passes of a step, J.
    """

    step: Floats
    state: Floats
    memory: Floats
    joules: Floats


class Unsplit(NamedTuple):
    """An unsplit pipeline, of each combination: s of a microbatch's computation, of its passes with what is exchanged
    within them, of what may overlap with a pass of another microbatch of it, and of an update; weights, but for those
    of experts that replicas share, and of these; J of a microbatch above idle power; B of a sample that are stored."""

    work: Floats
    forward: Floats
    backward: Floats
    ahead: Floats
    back: Floats
    update: Floats
    weights: Floats
    theirs: Floats
    joules: Floats
    stored: Floats


def bound(experiment: Experiment, combinations: Space, cuts: bool = False) -> Bound:
    """Return the bounds of the combinations of a scalar experiment; cuts: by the stages of each, which takes longer."""
    c, (one, blocks) = combinations.columns, _unsplit(experiment, combinations)
    m, p, one = c["microbatches"], c["pipeline"], _without_hidden(combinations, one)
    wait = (_slowest(experiment, c) - 1) * m * one.work / p
    behind = c.get("gather", np.array(experiment.strategy.gather)) == FORWARD
    weights, sharded = np.stack([one.weights, one.theirs]), _shards(c)
    *sent, gathers = _exchanges(experiment, combinations, weights)
    sent[2] = np.where((c["zero"] == 3) & ~behind, sent[2], 0.0)
    state = of_state(experiment, combinations, weights, sharded)
    memory = np.maximum(state / p, with_activations(experiment, combinations, one.stored, state))
    device = experiment.machine.device
    room, reserved = float(device.memory), float(device.reserved_memory)
    own = of_state(experiment, combinations, np.stack([blocks.weights, blocks.theirs]), sharded)
    some = memory + reserved <= room
    whole, fits = of_whole_blocks(experiment, combinations, blocks, own, some)
    if cuts:
        known, held = _of_cuts(experiment, combinations, weights, sent, sharded)
        whole, memory = np.maximum(whole, known), np.maximum(memory, held)
    step = np.maximum(_of_passes(combinations, one, sent, wait), whole + wait)
    step = _with_update(c, step + one.update / p / sharded, gathers, behind)
    every = step, state / p + reserved, memory + reserved, m * one.joules / p
    found = Bound(*(column * (1 - 1e-12) for column in every))
    over = np.where(some & ~fits, np.nextafter(room, np.inf), found.memory)
    return replace(found, memory=over)


def _without_hidden(combinations: Space, one: Unsplit) -> Unsplit:
    """Return the passes without what passes of the other direction may hide."""
    both = combinations.has("schedule", "dualpipe") & (combinations.columns["pipeline"] > 1)
    return one._replace(
        forward=one.forward - both * one.ahead, backward=one.backward - both * one.back
    )


def _shards(c: Columns) -> Floats:
    """Return over how many ranks the state of each combination is sharded."""
    sharded = np.where(c["zero"] > 0, c["data"] * c["context"], 1)
    if "shards" in c:
        sharded = np.where(c["shards"] > 0, c["shards"], sharded)
    return sharded


def _of_passes(combinations: Space, one: Unsplit, sent: Sequence[Floats], wait: Floats) -> Floats:
    """Return s of all passes of a step, by those of the whole network and the exchanges that they cannot outlast.

    sent: s to allreduce and to reduce-scatter all weights, and to gather them before a pass. wait: s for the slowest.
    """
    c, plain = combinations.columns, _plain(combinations)
    m, p, zero = c["microbatches"], c["pipeline"], c["zero"]
    summed, scattered, gathered = (kinds.sum(axis=0) for kinds in sent)
    forward = np.maximum(one.forward, gathered)
    backward = np.maximum(one.backward, gathered + np.where(zero > 1, scattered, 0.0))
    longer = _longer(c, plain)
    step = longer * (one.forward + one.backward) + wait
    step = np.maximum(step, longer * (forward + backward))
    once = m * forward + (m - 1) * backward + np.where(zero == 0, summed, scattered)
    return np.where(plain & (zero < 2), np.maximum(step, once / p), step)


def _with_update(c: Columns, step: Floats, gathers: Floats, behind: NDArray[np.bool_]) -> Floats:
    """Return s of a step of passes and update, with the gathers of updated weights.

    gathers: s to gather the weights of a mean stage; behind: where that is behind a forward pass.
    """
    after = ((c["zero"] == 1) | (c["zero"] == 2)) & ~behind
    step = step + np.where(after, gathers, 0.0)
    return np.where(
        (c["zero"] == 3) & ~behind, np.maximum(step, 2 * c["microbatches"] * gathers), step
    )


def _of_cuts(
    experiment: Experiment,
    combinations: Space,
    weights: Floats,
    sent: Sequence[Floats],
    sharded: Floats,
) -> tuple[Floats, Floats]:
    """Return s of all passes of a step, and B of state and activations, by the stages of each.

    weights: by who shares them, (2, combinations). sent: s to allreduce and to reduce-scatter all of them, and to
    gather them before a pass.
    """
    zero, ones = combinations.columns["zero"], np.ones(len(combinations))
    summed, scattered, gathered = (one / np.where(weights > 0, weights, np.inf) for one in sent)
    state = [of_state(experiment, combinations, one[:, None], sharded) for one in np.eye(2)]
    of_each = ExchangeTimes(
        gathered,
        np.where(zero > 1, scattered, 0.0),
        np.where(zero == 0, summed, np.where(zero == 1, scattered, 0.0)),
        np.stack(state),
        of_microbatch(experiment, combinations, ones),
    )
    return of_cuts(experiment, combinations, _layers(experiment, combinations), of_each)


def _slowest(experiment: Experiment, c: Columns) -> Floats:
    """Return by which factor the slowest device of each combination exceeds the mean."""
    strategy, jitter = experiment.strategy, experiment.machine.jitter
    devices = c.get("nodes", np.array(strategy.nodes)) * experiment.devices_per_node
    found: Floats = stragglers.slowest(devices, jitter, strategy.local_steps)
    return found


def _longer(c: Columns, plain: NDArray[np.bool_]) -> Floats:
    """Return how many times as long as those of a microbatch, unsplit, all passes of a step take."""
    m, p = c["microbatches"].astype(float), c["pipeline"].astype(float)
    filled = np.where(m > 1, -1 / np.expm1(p * np.log1p(-1 / np.maximum(m, 2))), 1.0)
    return np.where(plain, np.maximum(m / p, filled), m / p)


def _plain(combinations: Space) -> NDArray[np.bool_]:
    """Return where a stage does each microbatch's passes one after the other, the last backward pass last."""
    return combinations.has("schedule", "gpipe", "1f1b")


def _unsplit(experiment: Experiment, combinations: Space) -> tuple[Unsplit, Blocks]:
    names = _inside(combinations)
    rows, kind = combinations.kinds(*names, "pipeline", "microbatches", "chunks")
    some = combinations.only(rows)
    c, within = some.columns, _within(experiment.model, some.columns)
    samples, sizes = c["batch"] // c["microbatches"], _sizes(samples_of(experiment))
    own, every = len(Unsplit._fields), keyed(experiment)
    found = np.zeros((own + len(Blocks._fields), len(rows)))
    for same in alike([*(c[name] for name in names), within]):
        place = np.searchsorted(sizes.value, samples[same])
        way = _way(c, names, same[0])
        known = _of_microbatches(every, sizes, way, bool(within[same[0]]))
        found[:own, same], found[own:, same] = (np.array(each)[:, place] for each in known)
    return Unsplit(*found[:own, kind]), Blocks(*found[own:, kind])


def _layers(experiment: Experiment, combinations: Space) -> Callable[[int], Layers | None]:
    """Return what gives the layers of a row's network, as they are split; None where it cannot be split so."""
    names, c, every = _inside(combinations), combinations.columns, keyed(experiment)
    within, sizes = _within(experiment.model, c), _sizes(samples_of(experiment))

    def of(row: int) -> Layers | None:
        found = _passes_of(every, sizes, _way(c, names, row), bool(within[row]))
        return None if found is None else found.parts

    return of


def _way(c: Columns, names: list[str], row: int) -> Keyed[dict[str, object]]:
    fields = {name: c[name][row].item() for name in names}
    return Keyed(fields, *fields.items())


@lru_cache(maxsize=64)
def _sizes(batch: int) -> Keyed[NDArray[np.int64]]:
    """Return the samples that a microbatch may have, in order; batch: of all replicas."""
    each = np.array(divisors(batch))
    return Keyed(each, each.tobytes())


def _inside(combinations: Space) -> list[str]:
    """Return the fields on which an unsplit pipeline depends."""
    return [name for name in combinations.columns if name not in (*OUTSIDE, "batch")]


def _within(model: Model, c: Columns) -> NDArray[np.bool_]:
    """Return where stages may be cut so that they recompute another part of their blocks than the whole network."""
    found = np.zeros(len(c["pipeline"]), bool)
    for rows in alike([c["pipeline"], c["chunks"], c["recompute"]]):
        stages, how = int(c["pipeline"][rows[0]] * c["chunks"][rows[0]]), c["recompute"][rows[0]]
        if stages > 1 and how in (EARLY_STOP, PER_OP):
            try:
                found[rows] = cut_within(model, str(how), cut_points(model, stages))
            except SpecError:  # a prediction raises it again
                found[rows] = True
    return found


@lru_cache(maxsize=64)  # the ways to split the layers of a space, with the times of every layer
def _passes_of(
    every: Keyed[Experiment],
    samples: Keyed[NDArray[np.int64]],
    way: Keyed[dict[str, object]],
    within: bool,
) -> Passes | None:
    """Return an unsplit pipeline for each number of samples in a microbatch, with some fields; within: see _within.

    None where the network cannot be split so.
    """
    experiment, fields = every.value, way.value
    plain: dict[str, object] = {"pipeline": 1, "microbatches": 1, "schedule": "1f1b", "chunks": 1}
    plain |= {"zero": 0, "shards": 0, "gather": "usual", "zero_unit": "block"}
    plain |= {"offload": "none", "data": 0}

    def of(batch: int) -> Experiment:
        strategy = replace(experiment.strategy, **{**plain, **fields, "batch": batch})  # type: ignore[arg-type]
        return replace(experiment, strategy=strategy)

    try:
        own = of(int(samples.value[0]))
        step = program(own)
        # A rate is measured with a batch, a scale is of any.
        many = samples.value.tolist()[: None if experiment.calibration.rate else 1]
        scale = np.array([float(compute_scale(of(batch))) for batch in many])
    except SpecError:  # the prediction raises it again, where it is counted
        return None
    return Passes(own, step, samples.value.astype(float), scale[:, None], within)


@lru_cache(maxsize=4096)
def _of_microbatches(
    every: Keyed[Experiment],
    samples: Keyed[NDArray[np.int64]],
    way: Keyed[dict[str, object]],
    within: bool,
) -> tuple[Unsplit, Blocks]:
    """Return the same, summed."""
    passes = _passes_of(every, samples, way, within)
    if passes is None:
        nothing = np.zeros(len(samples.value))
        return Unsplit(*[nothing] * len(Unsplit._fields)), Blocks(*[nothing] * len(Blocks._fields))
    step, (work, forward, backward, joules) = passes.step, passes.work()
    ahead, back = passes.exchanged()
    update = passes.scale[:, 0] * work_of(step).update.min() + 0 * work
    weights, theirs = (one + 0 * work for one in passes.weights.sum(axis=1))
    stored = passes.stored() + 0 * work
    both = forward + ahead, backward + back
    first, second = passes.exchanged(STREAM)
    one_of_each = work, *both, first, second, update, weights, theirs, joules, stored
    return Unsplit(*one_of_each), passes.blocks()


def _exchanges(experiment: Experiment, combinations: Space, weights: Floats) -> list[Floats]:
    """Return the least s to allreduce, reduce-scatter and all-gather all weights over those that hold them, (2,
    combinations) each, and to gather those of a mean stage; 0: unknown. weights: by who shares them, too."""
    rows, kind = combinations.kinds(*_inside(combinations), "pipeline")
    some, held = combinations.only(rows), weights[:, rows]
    strategy = experiment.strategy
    unknown = is_cast(strategy) or experiment.compressed or strategy.update == "local"
    known = np.zeros_like(held) if unknown else held
    size, longest = roofline.BYTES[strategy.precision], np.full(len(rows), LONGEST)
    found = []
    for goal in ("allreduce", "reduce_scatter", "allgather"):
        each = [_over_replicas(experiment, some, goal, longest, theirs) for theirs in (False, True)]
        found.append(known * (size * np.stack(each) / LONGEST))
    stages = some.columns["pipeline"]
    gathers = _over_replicas(experiment, some, "allgather", held[0] / stages * size)
    # Which stages have the experts is not known.
    gathers = np.where(held[1] > 0, found[2].sum(axis=0) / stages, gathers)
    return [each[..., kind] for each in (*found, gathers)]


def _over_replicas(
    experiment: Experiment, combinations: Space, goal: str, sent: Floats, theirs: bool = False
) -> Floats:
    """Return s of collectives of some bytes over all replicas, or over those that have the same experts; 0: they are
    over some of them."""
    c, found = combinations.columns, np.zeros(len(combinations))
    if _over_some(experiment, combinations):
        return found
    shared = experts_of(experiment, c) if theirs else 1
    many, apart = c["data"] * c["context"] // shared, c["tensor"] * c["spatial"] * shared
    every = keyed(experiment)
    for rows in alike([many, apart]):
        ranks = int(many[rows[0]])
        if ranks > 1:
            each = Keyed(sent[rows], sent[rows].tobytes())
            found[rows] = _collective(every, goal, ranks, int(apart[rows[0]]), each)
    return np.where(sent > 0, found, 0.0)


@lru_cache(maxsize=4096)
def _collective(
    every: Keyed[Experiment], goal: str, ranks: int, apart: int, sent: Keyed[Floats]
) -> Floats:
    """Return s of a collective of some bytes, over ranks that are so far apart, of the groups that lie best."""
    nets, way = placements(every.value, ranks, apart), every.value.strategy.allreduce
    each = [collective(goal, sent.value, net, 1, way).total for net in nets]
    return np.min(each or [0 * sent.value], axis=0)


def _over_some(experiment: Experiment, combinations: Space) -> bool:
    """Return whether some replicas may exchange in a group of their own, or messages are not known here."""
    unknown = {"shards", "nodes", "allreduce"} & combinations.columns.keys()
    return bool(unknown or experiment.strategy.shards)
