"""Checks of lab 1: is a step on several ranks the step of one rank that has all samples?

In the notebook:   check(step, NAME), on_ranks(step, NAME)
In a terminal:     python checks.py step.py "your name"                  emulated ranks
                   mpiexec -n 4 python checks.py step.py "your name"     real ranks; srun works as well
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from lib_dlhpc.explore.labs.lab import save_and_run, say, show
from lib_dlhpc.labs.attempts import report
from lib_dlhpc.labs.emulated.data_parallel_step import (
    NEAR,
    EmulatedRun,
    loss_off,
    off,
    one_rank,
    part,
    run_emulated,
    task_of,
    travels,
    way_off,
)
from lib_dlhpc.labs.emulated.ranks import Endless, LabError
from lib_dlhpc.labs.findings import broken, kept, later, passed, seed_of
from lib_dlhpc.labs.program import arguments, emulated_first, end_together, end_with, handed_in

HERE = Path(__file__).parent
RANKS = 4
ALONE = "One rank alone"
AGREE = "Replicas agree"
LOSS = "The loss is that of the whole batch"
TARGET = "Target: the gradients travel once"
# The guess's answers are here so that its cell does not show them.
IDENTICAL = {
    "result": "not known yet",
    "explanation": "Keep this in mind when you read the results of the checks.",
}


def tasks(name, ranks=RANKS):
    """Return the learner's own tasks: even shards, uneven ones, and one with a rank without samples."""
    rng = np.random.default_rng(seed_of(name))
    widths = [64, int(rng.integers(10, 21)), int(rng.integers(6, 13)), 10]
    seed, rate = int(rng.integers(1000)), round(float(rng.uniform(0.1, 0.5)), 2)
    even = [int(rng.integers(3, 8))] * ranks
    uneven = (1 + rng.permutation(2 * ranks)[:ranks]).tolist()
    empty = [*uneven[1:], 0]
    shares = {"Even shards": even, "Uneven shards": uneven, "A rank without samples": empty}
    return {law: task_of(widths, seed, cut, rate) for law, cut in shares.items()}


def findings(step, name, run=run_emulated):
    """Return what holds for `step`, on emulated ranks. run(step, task): another kind of ranks, see torch_checks.py."""
    try:
        return _findings(step, tasks(name), run)
    except Endless as error:  # nobody waits for the same again
        return [broken(ALONE, str(error)), *map(later, (AGREE, *tasks(name), LOSS, TARGET))]


def _findings(step, own, run):
    result, emulated, reported = [_alone(step, own["Even shards"], run)], {}, set()
    reported.add(result[0].words)
    for law, task in own.items():
        try:
            emulated[law] = run(step, task)
            result.append(_equal(law, task, emulated[law]))
        except Endless:
            raise
        except LabError as error:
            words = "As above." if str(error) in reported else str(error)
            result.append(broken(law, words))
            reported.add(str(error))
    first = next(iter(emulated), None)
    if first is None:
        return [result[0], later(AGREE), *result[1:], later(LOSS), later(TARGET)]
    wrong = any(f.right is False for f in result if f.law in emulated)
    result.insert(1, _agree(emulated[first], own[first], not wrong))
    return [*result, _loss(emulated, own), _target(emulated[first], own[first], passed(result))]


def check(step, name):
    """Return the findings for the page."""
    return show(findings(step, name), f"Your step on {RANKS} emulated ranks")


def on_ranks(step, name, ranks=RANKS):
    """Save the cell of `step` as step.py and run it on MPI ranks, once the checks above hold."""
    if not passed(findings(step, name)):
        return say("Not yet: all checks on emulated ranks have to pass first.")
    return save_and_run(HERE, name, (step,), ranks)


def _alone(step, task, run):
    single = replace(task, shares=(sum(task.shares),))
    try:
        emulated = run(step, single)
    except Endless:
        raise
    except LabError as error:
        return broken(ALONE, str(error))
    expected, _ = one_rank(single)
    if off(emulated.weights[0], expected) > NEAR:
        why = way_off(single, emulated.weights)
        return broken(ALONE, f"This is not plain gradient descent on the mean loss. {why}".strip())
    return kept(ALONE, "It is plain gradient descent.")


def _agree(emulated, task, right):
    """Whether replicas end alike; if they do and are wrong, that says something as well."""
    last = emulated.weights[:, -1]
    parted = next(
        (r for r, own in enumerate(last) if not np.array_equal(own, last[0], equal_nan=True)), None
    )
    if parted is not None:
        return broken(
            AGREE, f"After {task.steps} steps rank {parted} has different weights than rank 0."
        )
    if right:
        return kept(AGREE, f"After {task.steps} steps all weights are the same, bit for bit.")
    return kept(
        AGREE,
        "They agree to the last bit, and yet something below is wrong: these replicas have the "
        "same gradients, but not the right ones.",
    )


def _equal(law, task, emulated):
    expected, _ = one_rank(task)
    worst = max(off(own, expected) for own in emulated.weights)
    shares = ", ".join(map(str, task.shares))
    if worst <= NEAR:
        return kept(
            law, f"Shards of {shares}: the weights of one rank, to {max(worst, 1e-16):.0e}."
        )
    far = f": off by {worst:.1e} of the largest weight" if np.isfinite(worst) else ""
    return broken(law, f"Shards of {shares}{far}. {way_off(task, emulated.weights)}".strip())


def _loss(emulated, own):
    for law, each in emulated.items():
        _, expected = one_rank(own[law])
        for rank, losses in enumerate(each.losses):
            if not _near(losses[0], expected[0]):  # later ones depend on the weights as well
                return broken(
                    LOSS,
                    f"{law}, rank {rank}: {_number(losses[0])} was returned where the mean over all samples"
                    f" of all ranks is {expected[0]:.6g}. {_which(own[law], rank, losses[0])}".strip(),
                )
    if len(emulated) < len(own):
        return later(LOSS)
    return kept(LOSS, "Every rank returns it.")


def _which(task, rank, value):
    return loss_off(task, rank, float(np.ravel(value)[0])) if _is_number(value) else ""


def _near(value, right):
    return _is_number(value) and abs(float(np.ravel(value)[0]) - right) <= 1e-9 * abs(right)


def _is_number(value):
    """Whether it is one, also as an array of one."""
    return np.size(value) == 1 and np.asarray(value).dtype.kind in "iuf"


def _number(value):
    return f"{float(np.ravel(value)[0]):.6g}" if _is_number(value) else repr(value)


def _target(emulated, task, right):
    times = travels(task, emulated)
    sentence = f"The gradients travel in and out of a rank {times:.2f} times in a step"
    if not right:
        return later(TARGET, f"{sentence}; this counts once the step is right.")
    if times > 1.1:
        return broken(TARGET, f"{sentence}; once is enough for any number of ranks.")
    if times < 0.9:
        return broken(
            TARGET, f"{sentence}. How did the rest get there? On real ranks only comm is shared."
        )
    return kept(TARGET, f"{sentence}.")


def main():
    """Check step.py on the ranks there are; on one, on emulated ones."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    file, name = arguments("step.py", '"your name"')
    step = handed_in(file, ["step"])["step"]
    if comm.size == 1:
        end_with(findings(step, name))
    own, emulated = tasks(name, comm.size), {}
    emulated_first(comm, lambda: [run_emulated(step, task) for task in own.values()])
    for law, task in own.items():
        weights, losses = part(step, task, comm)
        every, means = comm.gather(weights), comm.gather(losses)
        if comm.rank == 0:
            emulated[law] = EmulatedRun(np.array(every), means, ())
    if comm.rank == 0:
        result = [_equal(law, task, emulated[law]) for law, task in own.items()]
        print(f"{comm.size} real ranks\n{report([*result, _loss(emulated, own)])}")


if __name__ == "__main__":
    end_together(main)
