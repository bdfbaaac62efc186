"""What is wrong with a learner's step on sharded units: the unit, the rank and the step, and the mistake behind it.

weights_off(task, runs)   how the shards differ from one rank's; empty if they do not
losses_off(task, runs)    how the losses do
gathered_off(task, runs)  where a rank has the weights of more than one unit at a time
moved_off(task, runs)     how many times the necessary bytes the ranks have moved
"""

from collections.abc import Iterator, Sequence

import numpy as np

from lib_dlhpc.labs.lay_out_a_language_model.sharded_units import RankRun, ShardedTask
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.sentences import sentences
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network

say = sentences(__file__)

NEAR = 1e-10  # relative, in float64
ALIKE = 1e-8  # of a known mistake
GATHERS = ("Allgather", "allgather", "gather", "Bcast", "bcast")


def weights_off(task: ShardedTask, runs: Sequence[RankRun]) -> str:
    """Return how the shards differ from one rank's, in words; empty if they do not."""
    right, _ = task.one_rank
    for step, units in enumerate(right):
        wrong = [
            (unit, rank)
            for unit, own in enumerate(units)
            for rank, run in enumerate(runs)
            if _differs(run.shards[step][unit], task.shard_of(own, rank))
        ]
        if wrong:
            unit, rank = wrong[0]
            where = f"Step {step + 1}, unit {unit}, rank {rank}"
            only = {each for each, _ in wrong}
            those = "" if len(only) == len(units) else f" ({_units(only)} wrong, no other)"
            return (
                f"{where}{those}: the shard differs from that of a run on one rank. {_why(task, runs, step, unit)}"
            ).strip()
    return ""


def losses_off(task: ShardedTask, runs: Sequence[RankRun]) -> str:
    """Return which loss is not that of one rank, in words; empty if all are."""
    _, losses = task.one_rank
    for rank, run in enumerate(runs):
        for step, (found, right) in enumerate(zip(run.losses, losses, strict=True)):
            value = float(found) if isinstance(found, int | float | np.floating) else np.nan
            if not abs(value - right) <= NEAR * abs(right):
                shown = f"{value:.6g}" if value == value else repr(found)[:80]
                where = (
                    f"Step {step + 1}, rank {rank}: it returned {shown} as the loss; {right:.6g} is"
                )
                words = f"{where} the mean over the sequences of all ranks."
                return f"{words} {_why_loss(runs, step, value, right)}".strip()
    return ""


def _why_loss(runs: Sequence[RankRun], step: int, value: float, right: float) -> str:
    """Return the mistake behind a wrong loss; empty if unknown."""
    if abs(value * len(runs) / right - 1) <= ALIKE:
        return say.divided_twice
    values = [run.losses[step] for run in runs]
    known = all(isinstance(each, int | float | np.floating) for each in values)
    if known and abs(sum(values) / right - 1) <= ALIKE:
        return say.own_part
    return ""


def gathered_off(task: ShardedTask, runs: Sequence[RankRun]) -> str:
    """Return where a rank has the weights of more than one unit at a time, in words; empty if nowhere."""
    least = min(own.nbytes for own in task.weights) // 2
    most = max(task.ranks * task.shard_of(own, 0).nbytes for own in task.weights)
    for rank, run in enumerate(runs):
        waiting, held, step = 0, set[int](), 1
        for what, number in run.log:
            if what == "step":
                step = number + 1
            elif what == "hold":
                waiting = max(0, waiting - 1)
                held.add(number)
            elif what == "free":
                held.discard(number)
            elif what in GATHERS and number > least:
                waiting += 1
                if number > most:
                    return f"Step {step}, rank {rank}: one {what} brings {number} B; the largest unit has {most} B."
            words = _too_many(waiting, held, what, number)
            if words:
                return f"Step {step}, rank {rank} {words}"
        if held:
            return f"Rank {rank} still holds the weights of {_units(held)} after the last step."
    return ""


def _too_many(waiting: int, held: set[int], what: str, number: int) -> str:
    """Return what a rank does while it has weights already; empty if it has those of one unit at the most."""
    if waiting + len(held) <= 1:
        return ""
    if what == "hold":
        others = held - {number}
        return f"holds unit {number} while it still holds {_units(others)}: when can those weights be freed?"
    if held:
        return (
            f"gathers weights while it still holds {_units(held)}: when can those weights be freed?"
        )
    return say.gathered_early


def moved_off(task: ShardedTask, runs: Sequence[RankRun]) -> float:
    """Return how many times the necessary bytes the rank that moves most has moved."""
    return max(run.moved for run in runs) / (task.steps * task.least_moved())


def _units(numbers: set[int]) -> str:
    words = ", ".join(map(str, sorted(numbers)))
    return f"unit{'s' * (len(numbers) > 1)} {words}"


def _differs(found: Array, right: Array) -> bool:
    return not np.max(np.abs(found - right)) <= NEAR * max(1.0, float(np.max(np.abs(right))))


def _why(task: ShardedTask, runs: Sequence[RankRun], step: int, unit: int) -> str:
    """Return the mistake behind a wrong update of a unit; empty if unknown."""
    held = _wrongly_held(task, runs, step)
    if held:
        return held
    before = task.weights if step == 0 else task.one_rank[0][step - 1]
    moved = np.array(
        [
            task.shard_of(before[unit], rank) - run.shards[step][unit]
            for rank, run in enumerate(runs)
        ]
    )
    if not np.isfinite(moved).all():
        return say.no_number
    if not moved.any():
        return say.unchanged
    for words, wrong in _known(task, step, unit):
        if np.max(np.abs(moved - wrong)) <= ALIKE * np.max(np.abs(wrong)):
            return words
    return ""


def _wrongly_held(task: ShardedTask, runs: Sequence[RankRun], step: int) -> str:
    """Return which weights a rank held that were not those of one rank before this step; empty if none."""
    now = task.weights if step == 0 else task.one_rank[0][step - 1]
    for rank, run in enumerate(runs):
        counts = [0] * len(now)
        done = 0
        for what, number in run.log:
            done += what == "step"
            if what != "hold":
                continue
            seen, counts[number] = run.seen[number][counts[number]], counts[number] + 1
            if done == step and _differs(seen, now[number]):
                first = int(np.flatnonzero(~(np.abs(seen - now[number]) <= NEAR))[0])
                return (
                    f"Rank {rank} held weights of unit {number} that are wrong from number {first} of"
                    f" {seen.size} on: {_held_words(task, step, seen, number)}"
                )
    return ""


def _held_words(task: ShardedTask, step: int, seen: Array, number: int) -> str:
    if step and not _differs(seen, task.weights[number]):
        return say.stale
    shard = len(task.shard_of(task.weights[number], 0))
    return (
        f"shards of {shard} numbers follow each other in the order of the ranks, and the last shard is padded with"
        " zeros."
    )


def _known(task: ShardedTask, step: int, unit: int) -> Iterator[tuple[str, Array]]:
    """Yield the words and the update, (ranks, shard), of each classic mistake."""
    ranks, each = task.ranks, task.each
    g = task.rate * _gradients(task, step, unit)  # of each rank's part of the mean
    total = g.sum(axis=0)
    right = _sharded(task, [total] * ranks)
    yield (
        f"The update is {ranks} times too large: a sum of the ranks' means. Of how many sequences is the loss a mean?",
        ranks * right,
    )
    yield (
        f"The update is {ranks} times too small: it was divided by the number of ranks twice."
        " What does the loss already divide by?",
        right / ranks,
    )
    yield say.own_gradient, _sharded(task, list(g))
    yield say.own_gradient, ranks * _sharded(task, list(g))
    yield say.block_of_0, np.array([right[0]] * ranks)
    yield say.uphill, -right
    yield say.reversed_blocks, right[::-1]
    yield say.no_rate, right / task.rate
    yield say.updated_twice, 2 * right
    if each > 1:
        yield say.summed_loss, each * right


def _sharded(task: ShardedTask, vectors: list[Array]) -> Array:
    """Return each rank's shard of its vector."""
    return np.array([task.shard_of(own, rank) for rank, own in enumerate(vectors)])


def _gradients(task: ShardedTask, step: int, unit: int) -> Array:
    """Return each rank's part of the gradient of a unit, (ranks, weights), with one rank's weights."""
    network, weights = Network(task.experiment.model, np.float64, task.seed), task.weights
    if step:
        weights = task.one_rank[0][step - 1]
    network.weights[...] = np.concatenate(weights)
    ends, found = np.cumsum([own.size for own in weights])[:-1], []
    x, y = list(task.batches())[step]
    for rank in range(task.ranks):
        mine = slice(rank * task.each, (rank + 1) * task.each)
        _, dy = softmax_cross_entropy(network.forward(x[mine]), y[mine], len(x))
        network.backward(dy)
        found.append(np.split(network.gradients.copy(), ends)[unit])
    return np.array(found)
