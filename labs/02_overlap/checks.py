"""Checks of lab 2: do all buckets leave during backward, complete, once, and are they waited for?

In the notebook:   check(step, NAME), picture(step, NAME), simulated(NAME, bucket), on_ranks(step, NAME)
In a terminal:     python checks.py step.py "your name"                  emulated ranks
                   mpiexec -n 4 python checks.py step.py "your name"     real ranks; srun works as well
"""

import inspect
from functools import cache
from pathlib import Path

import numpy as np

from lib_dlhpc.explore.labs.lab import save_and_run, say, show
from lib_dlhpc.labs.attempts import report
from lib_dlhpc.labs.emulated.data_parallel_step import (
    NEAR,
    EmulatedRun,
    off,
    one_rank,
    part,
    run_emulated,
    task_of,
    travels,
    way_off,
)
from lib_dlhpc.labs.emulated.machine import hidden_share, machine_of, seconds_of, watch, watch_here
from lib_dlhpc.labs.emulated.ranks import LabError
from lib_dlhpc.labs.findings import broken, kept, later, passed, seed_of
from lib_dlhpc.labs.program import arguments, emulated_first, end_together, end_with, handed_in
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.units import format_quantity as show_quantity

HERE = Path(__file__).parent
RANKS = 4
SIZES = (1, 10**9)  # of buckets: a layer in each, and all in one
PAUSE = 0.1  # of backward; testing a request now and then costs less
MARGIN = 0.03  # above the best step that the simulation finds
ALL = "Every rank finishes"
WAITED = "Every sum is waited for"
COMPLETE = "No bucket leaves before it is complete"
ONCE = "Every gradient is sent, once"
EQUAL = "The weights are those of one rank"
EARLY = "The exchange begins before backward ends"
RUNS = "Backward does not stall"
TARGET = f"Target: within {MARGIN:.0%} of the best step on your machine"
LAWS = (ALL, WAITED, COMPLETE, ONCE, EQUAL, EARLY, RUNS, TARGET)


def experiment_of(name):
    """Return the learner's own network and machine."""
    return machine_of(seed_of(name))


def tasks(name, ranks=RANKS):
    """Return the learner's own tasks, each with its size of buckets: shards even, uneven, and none for one."""
    rng = np.random.default_rng(seed_of(name))
    widths = [64, int(rng.integers(10, 21)), int(rng.integers(6, 13)), 10]
    uneven = (1 + rng.permutation(2 * ranks)[:ranks]).tolist()
    cuts = ([4] * ranks, uneven, [0, *uneven[1:]])
    sizes = (1, 300, 10**9)  # a bucket a layer, some, one
    return [
        (size, task_of(widths, seed_of(name), cut, 0.3))
        for size, cut in zip(sizes, cuts, strict=True)
    ]


def cut_in(step, size):
    """Return the step with buckets of at least `size` gradients."""

    def with_buckets(*arguments):
        return step(*arguments, bucket=size)

    return with_buckets


def findings(step, name):
    """Return what holds for `step`, on emulated ranks and on the learner's machine."""
    try:
        watched = watch(step, experiment_of(name))
        others = [watch(cut_in(step, size), experiment_of(name)) for size in SIZES]
        own = [task for _, task in tasks(name)]
        emulated = [run_emulated(cut_in(step, size), task) for size, task in tasks(name)]
    except LabError as error:
        return [broken(ALL, str(error)), *map(later, LAWS[1:])]
    result = [kept(ALL, "No rank is left waiting."), *evidence(watched, *others)]
    if result[3].right and (times := max(map(travels, own, emulated))) > 1.1:
        words = f"Besides the buckets something is exchanged: gradients travel {times:.2f} times in a step."
        result[3] = broken(ONCE, words)
    result.append(_equal(own, emulated))
    result += [_early(watched), _runs(watched)]
    if not result[1].right:  # a sum that is never waited for takes no time in the record
        return [*result, later(TARGET, "Recorded once the step waits for every sum.")]
    chosen = inspect.signature(step).parameters.get("bucket")
    sizes = (chosen.default if chosen else None, *SIZES)
    ignored = next(filter(None, map(_ignored, sizes, (watched, *others))), "")
    return [*result, _target(watched, name, passed(result), ignored)]


def evidence(watched, *others):
    """Return what the records of steps say of their sums, on all ranks: the first that breaks a law, if any.

    others: with buckets of SIZES.
    """
    result = []
    for law in (_waited, _complete, _once):
        found = [law(watched)]
        for size, other in zip(SIZES, others, strict=False):
            each = law(other)
            found.append(each._replace(words=f"With bucket={size}: {each.words}"))
        result.append(next((each for each in found if not each.right), found[0]))
    return result


def check(step, name):
    """Return the findings for the page."""
    return show(findings(step, name), "Your step on 4 emulated ranks, and on your machine")


def machine(name):
    """Return the learner's machine in words."""
    experiment = experiment_of(name)
    link, model = experiment.machine.intra_node, experiment.model
    took = plain(name)
    return say(
        f"{RANKS} ranks; a link takes {show_quantity(link.latency, 's')} per message and carries"
        f" {show_quantity(link.bandwidth, 'B/s')}.\n{model.parameters:,} gradients of 8 B in"
        f" {np.count_nonzero(model.layer_parameters)} layers, the largest of"
        f" {int(model.layer_parameters.max()):,}.\nWith the exchange after backward a step takes"
        f" {show_quantity(seconds_of(took), 's')}."
    )


def gain(name):
    """Return by how many percent the best overlap shortens the step, as simulated."""
    return 100 * (1 - best(name) / seconds_of(plain(name)))


def picture(step, name):
    """Return the recorded step on the learner's machine as a chart."""
    from lib_dlhpc.explore.gantt.chart import gantt

    try:
        return gantt(watch(step, experiment_of(name)).timeline, "Your step, recorded")
    except LabError as error:
        return say(str(error))


def simulated(name, bucket, latency=1.0, bandwidth=1.0):
    """Return the simulated step as a chart. bucket: gradients that fill one, at least; None: no overlap.

    latency, bandwidth: times that of the learner's machine.
    """
    from lib_dlhpc.explore.gantt.chart import gantt

    took = plain(name) if bucket is None else simulate_buckets(name, bucket, latency, bandwidth)
    cut = "no overlap" if bucket is None else f"buckets of {bucket:,} gradients"
    sentence = (
        f"Simulated, {cut}: {show_quantity(seconds_of(took), 's')}, {hidden_share(took):.0%} hidden"
    )
    return gantt(took, sentence)


def plain(name):
    """Return the simulated step in which the exchange follows backward."""
    return simulate(experiment_of(name).set({"strategy.overlap": False, "strategy.bucket": 1e12}))


def simulate_buckets(name, bucket, latency=1.0, bandwidth=1.0):
    """Return the simulated step with buckets of at least this number of gradients, 8 B each."""
    own = experiment_of(name)
    link = own.machine.intra_node
    changes = {
        "strategy.bucket": 8.0 * bucket,
        "machine.intra_node.latency": latency * link.latency,
        "machine.intra_node.bandwidth": bandwidth * link.bandwidth,
    }
    return simulate(own.set(changes))


@cache
def best(name):
    """Return the seconds of the best step that the simulation finds, over sizes of buckets."""
    return min(seconds_of(simulate_buckets(name, size)) for size in sizes_of(name))


def sizes_of(name):
    """Return all sizes of buckets that make a difference: sums over layers that follow each other."""
    layers = experiment_of(name).model.layer_parameters
    sizes = np.unique(np.concatenate([np.cumsum(layers[k:]) for k in range(len(layers))]))
    return [int(size) for size in sizes if size]


def on_ranks(step, name, ranks=RANKS):
    """Save the cell of `step` as step.py and run it on MPI ranks, once all but the target holds."""
    if not passed(findings(step, name)[:-1]):
        return say("Not yet: all checks on emulated ranks except the target have to pass first.")
    return save_and_run(HERE, name, (step,), ranks)


def _each(watched):
    """Yield (rank, number, post, place) of every sum of arrays."""
    for rank, (posts, places) in enumerate(zip(watched.posts, watched.places, strict=True)):
        for number, (post, place) in enumerate(zip(posts, places, strict=True), 1):
            yield rank, number, post, place


def _of_gradients(watched):
    """Yield the places of each rank's sums, without those of a single number, such as the loss."""
    for posts, places in zip(watched.posts, watched.places, strict=True):
        yield [at for post, at in zip(posts, places, strict=True) if at or post.send.size > 1]


def _waited(watched):
    lost = [(rank, number) for rank, number, post, _ in _each(watched) if not post.waited]
    if lost:
        ranks, count = len({rank for rank, _ in lost}), max(number for _, number in lost)
        return broken(
            WAITED,
            f"On {ranks} ranks the step ends while allreduces are still in flight, the last of them number"
            f" {count}. What was in their buffers when the weights were updated?",
        )
    return kept(WAITED, "Nothing is in flight when the step ends.")


def _complete(watched):
    for rank, number, post, place in _each(watched):
        if place is not None and place[0] < post.complete:
            return broken(
                COMPLETE,
                f"On rank {rank}, sum number {number} started with gradients {place[0]:,} to {place[1] - 1:,}"
                f" when {_there(post.complete, watched.size)}.",
            )
        if post.changed:
            return broken(
                COMPLETE,
                f"On rank {rank}, what sum number {number} was sending was written to before the sum was"
                " waited for. Until then it belongs to the exchange.",
            )
    return kept(
        COMPLETE,
        "Each was complete when it was sent, and was not touched until its sum had arrived.",
    )


def _there(complete, size):
    return f"only those from {complete:,} on were there" if complete < size else "none was complete"


def _once(watched):
    for rank, places in enumerate(_of_gradients(watched)):
        if not places:
            return broken(
                ONCE,
                f"On rank {rank} the gradients were never sent. The record shows only sums of "
                "arrays: Iallreduce and Allreduce.",
            )
        if None in places:
            return broken(
                ONCE,
                f"Rank {rank} sends copies, so the record cannot tell which gradients they "
                "contain, and copying takes time. A slice of network.gradients needs no copy.",
            )
        times = np.zeros(watched.size, int)
        for start, stop in places:
            times[start:stop] += 1
        for wrong, words in (
            (times == 0, "were never sent"),
            (times > 1, "were sent more than once"),
        ):
            if wrong.any():
                first, last = np.flatnonzero(wrong)[[0, -1]]
                return broken(
                    ONCE,
                    f"On rank {rank}, {wrong.sum():,} of {watched.size:,} gradients {words}, the first of them"
                    f" number {first:,}, the last {last:,}.",
                )
    return kept(ONCE, "What backward computes last is sent as well.")


def _equal(own, emulated):
    right = [one_rank(task) for task in own]
    worst = max(
        off(rank, weights)
        for (weights, _), each in zip(right, emulated, strict=True)
        for rank in each.weights
    )
    if worst <= NEAR:
        for (_, losses), each in zip(right, emulated, strict=True):
            if not all(_near(found[0], losses[0]) for found in each.losses):
                return broken(EQUAL, "They are; the loss that is returned is not that of one rank.")
        return kept(
            EQUAL,
            f"Even, uneven and empty shards, large buckets and small, three steps: to {max(worst, 1e-16):.0e}.",
        )
    task, each = next(
        (task, each)
        for (weights, _), task, each in zip(right, own, emulated, strict=True)
        if any(off(rank, weights) > NEAR for rank in each.weights)
    )
    shards = f"Shards of {', '.join(map(str, task.shares))}"
    far = "" if np.isinf(worst) else f": off by up to {worst:.1e} of the largest weight"
    why = way_off(task, each.weights)
    return broken(EQUAL, f"{shards}{far}. {why or 'If all laws above hold, does lab 1 pass?'}")


def _near(value, right):
    return np.size(value) == 1 and np.allclose(value, right, rtol=1e-9)


def _early(watched, where="on your machine"):
    """By the order of events in the record, without timing."""
    for rank, posts in enumerate(watched.posts):
        if not any(post.inside and post.complete for post in posts if post.send.size > 1):
            return broken(EARLY, f"On rank {rank} nothing has been sent when backward ends.")
    if not _waited(watched).right:
        return kept(
            EARLY, "How much of it is hidden can be measured once the step waits for every sum."
        )
    share = hidden_share(watched.timeline)
    return kept(EARLY, f"{share:.0%} of the exchange is hidden behind backward {where}.")


def _runs(watched):
    still = [(rank, number) for rank, number, post, _ in _each(watched) if post.stood_inside]
    if still:
        rank, number = still[0]
        return broken(
            RUNS,
            f"On rank {rank} backward stalls until sum number {number} is complete. What is "
            "computed in the meantime?",
        )
    work = watched.timeline.where("compute", "backward")
    for rank in range(watched.timeline.ranks):
        mine = work & (watched.timeline.rank == rank)
        begun, ended = watched.timeline.start[mine], watched.timeline.stop[mine]
        idle = 1 - (ended - begun).sum() / (ended.max() - begun.min())
        if idle > PAUSE:
            return broken(
                RUNS,
                f"On rank {rank}, backward is idle for {idle:.0%} of the time from its start to "
                "its end. What runs during its pauses?",
            )
    return kept(RUNS, "The step waits for nothing before backward ends.")


def _ignored(size, watched):
    """Return how the buckets of a record differ from what `bucket=size` asks for; empty if they do not."""
    for rank, places in enumerate(_of_gradients(watched)):
        held = [stop - start for start, stop in filter(None, places)]
        small = next((each for each in held[:-1] if size and each < size), 0)
        if small:
            return (
                f"With bucket={size:,} a bucket of {small:,} gradients leaves rank {rank}, and more follow it."
                " All but the last must hold at least `bucket` gradients; otherwise there is no "
                "size to choose."
            )
    return ""


def _target(watched, name, right, ignored):
    took, goal, without = seconds_of(watched.timeline), best(name), seconds_of(plain(name))
    sentence = (
        f"Your step takes {show_quantity(took, 's')}; with the exchange after backward it would be"
        f" {show_quantity(without, 's')}, the best that the simulation finds is {show_quantity(goal, 's')}."
    )
    if not right:
        return later(TARGET, f"{sentence} It counts once everything else holds.")
    if ignored:
        return broken(TARGET, ignored)
    if took > (1 + MARGIN) * goal:
        return broken(TARGET, f"{sentence} What do more buckets cost, and what do fewer?")
    return kept(TARGET, sentence)


def main():
    """Check step.py on the ranks there are; on one, on emulated ones."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    file, name = arguments("step.py", '"your name"')
    step = handed_in(file, ["step"])["step"]
    if comm.size == 1:
        end_with(findings(step, name))
    own = tasks(name, comm.size)
    emulated_first(comm, lambda: [run_emulated(cut_in(step, size), task) for size, task in own])
    gathered = [comm.gather(part(cut_in(step, size), task, comm)) for size, task in own]
    watched = watch_here(step, experiment_of(name), comm)
    if comm.rank == 0:
        each = [
            EmulatedRun(np.array(w), losses, ())
            for w, losses in (zip(*t, strict=True) for t in gathered)
        ]
        equal = _equal([task for _, task in own], each)
        result = [*evidence(watched), equal, _early(watched, "here")]
        print(f"{comm.size} real ranks\n{report(result)}")


if __name__ == "__main__":
    end_together(main)
