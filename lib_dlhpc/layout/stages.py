"""A network cut into the stages of a pipeline: equal blocks or equal work, within the memory of a device.

Stages are runs of consecutive layers. They are cut where few arrays are live: between the blocks of a network
that is made of blocks, else where one array is live, else anywhere; every live array is sent. Blocks that share a
vector of the sample are cut between any two. Where all blocks are alike and the stages divide them, each stage has as
many, as in Megatron (Narayanan et al. 2021, section 2.2).
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, groupby
from math import inf
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.low_precision import with_narrow
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import EARLY_STOP, LIGHT, PER_OP, TRAINING_PRECISIONS

# Cost of an element-wise layer, which is memory-bound, in FLOP per element that it reads or writes.
FLOP_PER_ELEMENT = 30
STATE_BYTES = {**dict.fromkeys(TRAINING_PRECISIONS, 16.0), "fp64": 24.0}
ELEMENT_BYTES = {**dict.fromkeys(TRAINING_PRECISIONS, 2), "fp64": 8, "fp32": 4, "tf32": 4}


def stage_ends(experiment: Experiment) -> tuple[int, ...]:
    """Return for each stage the index one past its last layer.

    Stages of equally many blocks, if they fit in the device's memory, unless strategy.stage_cut = "work"; else the
    longest stage is as short as possible with every stage in it; if no cut fits, as short as possible. Raises SpecError
    for more stages than places to cut.
    """
    return stages_by_rule(experiment)[0]


def stages_by_rule(experiment: Experiment) -> tuple[tuple[int, ...], str]:
    """Return what `stage_ends` returns, and by which rule stages are cut, in words."""
    strategy = experiment.strategy
    stages = int(strategy.pipeline) * int(strategy.chunks)
    model = experiment.model
    if stages == 1:
        return (len(model.layers),), "not cut"
    edges = cut_points(model, stages)
    room, cut = DeviceBudget(experiment, edges, stages), _equal_blocks(model, stages)
    if strategy.stage_cut == "blocks" and cut and room.holds(cut):
        return tuple(edges[index] for index in cut), "equally many blocks in each stage"
    cut, rule = _shortest(model, stages), "the least work in the longest stage"
    if not room.holds(cut) and room.reaches_the_end:
        cut = cut_that_fits(_work_before(model, edges), stages, room.fits) or cut
        rule += ", of cuts whose stages all fit"
    return tuple(edges[index] for index in cut), rule


@lru_cache(maxsize=256)
def _equal_blocks(model: Model, stages: int) -> tuple[int, ...]:
    """Return which edges end stages of equally many blocks; none if blocks differ, or stages do not divide them."""
    wide = with_narrow(model, "")  # blocks that differ in their format alone are equal here
    rows = zip(model.blocks, [layer.likeness for layer in wide.layers], strict=True)
    named = [(name, [*run]) for name, run in groupby(rows, itemgetter(0))]
    blocks = [tuple([like for _, like in run]) for name, run in named if name]
    if not blocks or len(set(blocks)) > 1 or len(blocks) % stages:
        return ()
    first = len(named[0][1]) if not named[0][0] else 0
    each = len(blocks[0]) * (len(blocks) // stages)
    edges = cut_points(model, stages)
    ends = [first + stage * each for stage in range(1, stages)]
    return (*map(edges.index, ends), len(edges) - 1) if set(ends) <= set(edges) else ()


@lru_cache(maxsize=256)
def _shortest(model: Model, stages: int) -> tuple[int, ...]:
    """Return which edges end the stages if memory is no limit. Where these fit, no cut that fits is preferred to it."""
    return cut_without_limit(_work_before(model, cut_points(model, stages)), stages)


@lru_cache(maxsize=256)
def _work_before(model: Model, edges: tuple[int, ...]) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(layer_work(model))])[list(edges)]


def layer_work(model: Model) -> NDArray[np.float64]:
    """Return what each layer costs forward, in FLOP or equivalents, shape (layers,)."""
    moved = model.layer_input_elements + model.layer_output_elements
    moves = model.column(lambda layer: not layer.traits.view)
    return model.layer_forward_flop + FLOP_PER_ELEMENT * moves * moved


@lru_cache(maxsize=256)
def cut_points(model: Model, stages: int) -> tuple[int, ...]:
    """Return where a stage may begin or end: 0, ..., layers. Raises SpecError if there are too few places."""
    layers, blocks = len(model.layers), model.blocks
    between = [i for i in range(1, layers) if blocks[i] != blocks[i - 1]]
    single = [i for i, alive in enumerate(_live(model)) if 0 < i < layers and alive == 1]
    if sum(bool(block) for block in blocks) <= layers / 2:
        choices = [single]
    elif _read_by_many_blocks(model):
        choices = [between]
    else:
        choices = [sorted({*between} & {*single}), single]
    for places in choices:
        if len(places) >= stages - 1:
            return (0, *places, layers)
    if layers < stages:
        raise SpecError(
            f"strategy.pipeline x strategy.chunks = {stages} stages: {model.name or 'the model'} has"
            f" {layers} layers; legal: up to that."
        )
    return tuple(range(layers + 1))


def _live(model: Model) -> Iterable[int]:
    """Return how many outputs `live_names` has at each place."""
    change = [0] * (len(model.layers) + 1)
    for index, layer in enumerate(model.layers):
        if (readers := model.readers.get(layer.name)) is not None:
            change[index + 1] += 1
            change[readers[-1] + 1] -= 1
    return accumulate(change)


@lru_cache(maxsize=256)
def live_names(model: Model) -> tuple[tuple[str, ...], ...]:
    """Return for each place before a layer, and at the end, the outputs that are read from there on.

    Samples are not counted: each reader loads them.
    """
    last_read: dict[str, int] = {}
    for index, layer in enumerate(model.layers):
        for name in layer.inputs:
            last_read[name] = index
    alive: list[str] = []
    found: list[tuple[str, ...]] = []
    for index, layer in enumerate(model.layers):
        alive = [name for name in alive if last_read.get(name, -1) >= index]
        found.append(tuple(alive))
        alive.append(layer.name)
    return (*found, ())


def _read_by_many_blocks(model: Model) -> bool:
    """Return whether blocks share a vector of the sample, such as its timestep, which is then live in all of them."""
    vectors = [layer.name for layer in model.layers if len(layer.output_shape) == 1]
    readers = ({model.blocks[each] for each in model.readers.get(vector, ())} for vector in vectors)
    return any(len(blocks - {""}) > 2 for blocks in readers)


def cut_that_fits(
    work: NDArray[np.float64], stages: int, fits: Sequence[NDArray[np.bool_]]
) -> tuple[int, ...] | None:
    """Return which edges end the stages that minimize the largest work of a stage; None if none fits.

    best[k][j]: the largest work of a stage when edges up to j are cut into k stages.
    """
    edges = len(work)
    best = np.full((stages + 1, edges), inf)
    previous = np.zeros((stages + 1, edges), dtype=np.int64)
    best[0, 0] = 0.0
    between = work[None, :] - work[:, None]
    between[np.tril_indices(edges)] = inf  # a stage ends after it begins
    for stage in range(1, stages + 1):
        longest = np.maximum(best[stage - 1, :, None], between)
        longest[~fits[stage - 1]] = inf
        # The last of equals: earlier stages take the remainder.
        previous[stage] = edges - 1 - np.argmin(longest[::-1], axis=0)
        best[stage] = longest[previous[stage], np.arange(edges)]
    return None if best[stages, -1] == inf else _ends(previous)


def cut_without_limit(work: NDArray[np.float64], stages: int) -> tuple[int, ...]:
    """Return what `cut_that_fits` returns if all stages fit; edges are at least as many as stages and one.

    The longest stage before edge i grows with i, the last stage from i to j shrinks: the best i is where they cross.
    """
    edges = len(work)
    previous = np.zeros((stages + 1, edges), dtype=np.int64)
    best = work - work[0]  # of one stage
    for stage in range(2, stages + 1):
        first, ends = stage - 1, np.arange(stage, edges)
        low, cross = np.full(len(ends), first), ends.copy()
        while np.any(low < cross):  # bisection
            middle = (low + cross) // 2
            crossed = best[middle] >= work[ends] - work[middle]
            low, cross = np.where(crossed, low, middle + 1), np.where(crossed, middle, cross)
        before, after = np.maximum(cross - 1, first), np.minimum(cross, ends - 1)
        # The last of equals: earlier stages take the remainder.
        equal = np.minimum(np.searchsorted(best, best[after], "right") - 1, ends - 1)
        earlier = (cross == first) | (best[after] <= work[ends] - work[before])
        begin = np.where(earlier, equal, before)
        previous[stage, ends] = begin
        best[ends] = np.maximum(best[begin], work[ends] - work[begin])
    return _ends(previous)


def _ends(previous: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the edges that end the stages; previous[k, j]: where the last of k stages that end at edge j begins."""
    stages, end = len(previous) - 1, previous.shape[1] - 1
    ends = []
    for stage in range(stages, 0, -1):
        ends.append(end)
        end = int(previous[stage, end])
    return tuple(reversed(ends))


class DeviceBudget:
    """What fits in the memory of a device: an estimate, for the cut only, of model state and of activations of the
    microbatches in flight."""

    def __init__(self, experiment: Experiment, edges: tuple[int, ...], stages: int) -> None:
        strategy, model, at = experiment.strategy, experiment.model, list(edges)
        ranks = strategy.tensor * strategy.spatial * strategy.context
        size = ELEMENT_BYTES[strategy.precision]
        sums = _sums(model, strategy.recompute)[:, at]  # up to each edge
        self.states = (STATE_BYTES[strategy.precision] * sums[0] + size * sums[1]) / strategy.tensor
        if strategy.recompute in ("full", EARLY_STOP) or strategy.offload != "none":
            self.keeps = np.zeros(len(at))
        else:
            kept = (size * sums[2] + sums[3]) / ranks
            self.keeps = kept * strategy.batch / strategy.microbatches
        self.in_flight = _in_flight(experiment, stages)
        device = experiment.machine.device
        held = 2 if strategy.mirrored else strategy.chunks
        self.room = (device.memory - device.reserved_memory) / held

    def holds(self, cut: tuple[int, ...]) -> bool:
        """Whether all stages fit that end at these edges."""
        ends, starts = list(cut), [0, *cut[:-1]]
        need, hold = (each[ends] - each[starts] for each in (self.states, self.keeps))
        return bool(np.all(need + self.in_flight * hold <= self.room))

    @property
    def reaches_the_end(self) -> bool:
        """Whether stages that each reach as far as they can reach the end; if not, no cut fits."""
        states, keeps, at = self.states.tolist(), self.keeps.tolist(), 0
        for in_flight in self.in_flight.tolist():
            need, hold, over = states[at], keeps[at], len(states)
            fits = at
            while over - fits > 1:  # what a stage needs grows with every edge
                middle = (fits + over) // 2
                asked = states[middle] - need + in_flight * (keeps[middle] - hold)
                fits, over = (middle, over) if asked <= self.room else (fits, middle)
            if fits == len(states) - 1:
                return True
            at = fits
        return False

    @property
    def fits(self) -> list[NDArray[np.bool_]]:
        """Of stage k whether it may reach from edge i to edge j, shape (edges, edges); alike stages share theirs."""
        in_flight, alike = np.unique(self.in_flight, return_inverse=True)
        need, hold = (each[None, :] - each[:, None] for each in (self.states, self.keeps))
        found: list[NDArray[np.bool_]] = [need + many * hold <= self.room for many in in_flight]
        return [found[at] for at in alike]


@lru_cache(maxsize=256)
def _sums(model: Model, recompute: str) -> NDArray[np.float64]:
    """Return before each layer and at the end the parameters so far that are trained, and the others, the elements that
    are stored a sample, and the bytes that are not in elements, (4, layers + 1)."""
    rows = np.zeros((4, len(model.layers) + 1))
    frozen = model.layer_parameters - model.layer_trained
    rows[:2, 1:] = model.layer_trained, frozen
    rows[2:, 1:] = model.layer_stored, model.layer_mask_bytes
    if recompute in ("selective", PER_OP):
        rows[2:, 1:][:, _selective(model)] = 0.0
    if recompute in (LIGHT, PER_OP):
        rows[2:, 1:][:, _light(model)] = 0.0
    return np.cumsum(rows, axis=1)


@lru_cache(maxsize=256)
def _selective(model: Model) -> NDArray[np.bool_]:
    """Return which layers selective recomputation recomputes."""
    return model.column(lambda layer: layer.traits.selective) > 0


@lru_cache(maxsize=256)
def _light(model: Model) -> NDArray[np.bool_]:
    """Return which layers light recomputation recomputes; what is expanded for latent attention is left out."""
    return model.column(lambda layer: layer.traits.light) > 0


def _in_flight(experiment: Experiment, stages: int) -> NDArray[np.float64]:
    """Return the microbatches in flight of each stage; with chunks, the mean of its rank."""
    strategy = experiment.strategy
    ranks, many, chunks = int(strategy.pipeline), int(strategy.microbatches), int(strategy.chunks)
    behind = ranks - np.arange(stages) % ranks
    if strategy.schedule == "gpipe":
        return np.full(stages, float(many))
    if strategy.mirrored:  # the mean of two stages
        return np.full(stages, (ranks + 1) / 2)
    if chunks > 1:
        warm_up = 2 * (behind - 1) + (chunks - 1) * ranks
        return np.minimum(many, (warm_up + 1) / chunks)
    return np.minimum(many, behind).astype(float)
