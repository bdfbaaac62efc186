"""Checks of lab 6 in PyTorch: does ZeRO hold on a rank what the ledger says, and train as one rank does?

In a terminal:     python torch_checks.py torch_step.py "your name"

Bytes are counted at the update: the storages of all tensors of a process, on each of four ranks.
"""

import numpy as np

from lib_dlhpc.costs.model_state import model_state_bytes
from lib_dlhpc.labs.emulated.data_parallel_step import NEAR, off, task_of
from lib_dlhpc.labs.findings import broken, kept, later, seed_of
from lib_dlhpc.labs.mistakes import Endless, LabError
from lib_dlhpc.labs.program import arguments, end_together, end_with, existing
from lib_dlhpc.labs.torch_ranks.held import one_rank_with_momentum, updated
from lib_dlhpc.labs.torch_ranks.runs import fsdp, sharded
from lib_dlhpc.labs.torch_ranks.world import World
from lib_dlhpc.spec.units import format_quantity as show_quantity

RANKS = 4
LEVELS = (0, 1, 2, 3)
SLACK = 0.03  # of the bytes, for small tensors, and for shards that are not all of one size
EQUAL, HOLDS, MOVES = (
    "it trains as one rank does",
    "a rank holds what the ledger says",
    "once around",
)
FSDP = "FSDP: a rank holds what ZeRO 3 does, and trains as one rank"
SHARDED = {1: "the momentum", 2: "the gradients", 3: "the weights"}


def task_for(name, ranks=RANKS):
    """Return the learner's own task: even shares, and weights that four ranks share evenly."""
    rng = np.random.default_rng([seed_of(name), 6])
    width, seed = 4 * int(rng.integers(100, 200)) + 2, int(rng.integers(1000))
    return task_of([64, width, 10], seed, [4] * ranks, round(float(rng.uniform(0.02, 0.1)), 3))


def ledger(size, ranks, zero):
    """Return the bytes of weights, gradients and momentum, in fp64, on a rank."""
    return float(model_state_bytes(size, "fp64", "momentum", ranks, zero))


def law(zero, what):
    """Return the name of a law of a level."""
    return f"ZeRO {zero}: {what}"


def torch_findings(world, file, name, start="start", step="step", shard="shard"):
    """Return what holds for the functions of a file, given by their names."""
    task, result = task_for(name), []
    expected = one_rank_with_momentum(task)
    for zero in LEVELS:
        laws = [law(zero, each) for each in (EQUAL, HOLDS, MOVES)]
        try:
            enough = (1 + SLACK) * ledger(expected.shape[1], RANKS, zero)
            held = sharded(world, file, (start, step), zero, enough, task)
        except Endless as error:  # nobody waits for the same again
            rest = [law(level, EQUAL) for level in LEVELS[zero + 1 :]]
            return [*result, broken(laws[0], str(error)), *map(later, [*rest, FSDP])]
        except LabError as error:
            result += [broken(laws[0], str(error)), *map(later, laws[1:])]
            continue
        result += [_equal(laws[0], held, expected), _holds(laws[1], held, zero, expected.shape[1])]
        result.append(_moves(laws[2], held, expected.shape[1]))
    return [*result, _fsdp(world, file, shard, task, expected)]


def _equal(law, held, expected):
    size = expected.shape[1]
    found = updated(held, size)
    if found is None:
        sizes = ", ".join(f"{each.weights.shape[1]:,}" for each in held)
        return broken(
            law,
            f"Ranks update {sizes} of {size:,} weights: either all ranks update all weights in "
            "the same way, or each rank updates its part.",
        )
    steps = [off(own, right) for own, right in zip(found, expected, strict=True)]
    wrong = next((number for number, far in enumerate(steps) if far > NEAR), None)
    if wrong is None:
        return kept(law, f"To {max(*steps, 1e-16):.0e} after {len(steps)} steps.")
    why = (
        "Which samples are these gradients from? They are parts of a mean over all samples, and "
        "have to be summed."
        if wrong == 0
        else "The first step is right, but a later one is not. Who gets the weights that another "
        "rank has updated?"
    )
    return broken(
        law, f"Step {wrong + 1} is off by {steps[wrong]:.1e} of the largest weight. {why}"
    )


def _holds(law, held, zero, size):
    right, ranks = ledger(size, len(held), zero), len(held)
    rank = max(range(ranks), key=lambda r: abs(held[r].bytes - right))
    found = held[rank].bytes
    sentence = f"Rank {rank} holds {show_quantity(found, 'B')}, the ledger says {show_quantity(right, 'B')}"
    if abs(found - right) <= SLACK * right:
        return kept(law, f"{sentence}.")
    view, why = held[rank].view, ""
    if zero > 1 and view is not None:
        why = (
            f" A tensor of {view[0]:,} numbers keeps a storage of {view[1]:,}: a slice is a view, and the"
            " whole tensor stays in memory."
        )
    same = next((z for z in LEVELS if abs(found - ledger(size, ranks, z)) <= SLACK * right), None)
    if same is not None and found > right:
        whole = " and ".join(SHARDED[z] for z in range(same + 1, zero + 1))
        return broken(law, f"{sentence}: that is ZeRO {same}. Who still needs all of {whole}?{why}")
    if same is not None:
        return broken(law, f"{sentence}: that is ZeRO {same}, which shards more than this level.")
    return broken(law, f"{sentence}. What else is still in memory when `update` is called?{why}")


def _moves(law, held, size):
    """Whether a rank sends and receives no more than a reduce-scatter and an allgather do."""
    most = max(each.moved for each in held) / (8 * size)
    limit = 2 * (1 + 1 / len(held))
    sentence = f"A rank sends and receives {most:.2f} times the gradients"
    if most > 1.05 * limit:
        return broken(
            law,
            f"{sentence}; a reduce-scatter and an allgather are {limit:.2f}, and an allreduce is both: who needs the"
            " sum of all gradients?",
        )
    return kept(law, f"{sentence}.")


def _fsdp(world, file, shard, task, expected):
    try:
        enough = (1 + SLACK) * ledger(expected.shape[1], RANKS, 3)
        held = fsdp(world, file, shard, enough, task)
    except LabError as error:
        return broken(FSDP, str(error))
    equal, holds = _equal(FSDP, held, expected), _holds(FSDP, held, 3, expected.shape[1])
    return holds if equal.right else equal


def main():
    """Check a file with `start`, `step` and `shard`."""
    file, name = arguments("torch_step.py", '"your name"')
    with World(RANKS) as world:
        result = torch_findings(world, existing(file), name)
    end_with(result, "PyTorch")


if __name__ == "__main__":
    end_together(main)
