"""Checks of lab 2 in PyTorch: do buckets leave while backward runs? By the order of events, not by a clock.

In a terminal:     python torch_checks.py torch_step.py "your name"
"""

from itertools import accumulate

import numpy as np
from checks import ALL, COMPLETE, EARLY, EQUAL, ONCE, RANKS, RUNS, WAITED, tasks

from lib_dlhpc.labs.emulated.data_parallel_step import NEAR, off, one_rank, way_off
from lib_dlhpc.labs.findings import broken, kept, later
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.program import arguments, end_together, end_with, existing
from lib_dlhpc.labs.torch_ranks.runs import overlap
from lib_dlhpc.labs.torch_ranks.world import World

FULL = "A bucket leaves as soon as it is full"
LAWS = (WAITED, COMPLETE, ONCE, EQUAL, FULL, EARLY, RUNS)


def torch_findings(world, file, name, attach="attach"):
    """Return what holds for a function of a file, given by its name."""
    own = tasks(name)
    try:
        runs = [overlap(world, file, attach, size, task) for size, task in own]
    except LabError as error:
        return [broken(ALL, str(error)), *map(later, LAWS)]
    records = [
        (size, rank[1], rank[2]) for (size, _), run in zip(own, runs, strict=True) for rank in run
    ]
    laws = (waited, complete, once, full, early, runs_on)
    found = [_first(law, records) for law in laws]
    found.insert(3, _equal([task for _, task in own], runs))
    return [kept(ALL, "No rank is left waiting."), *found]


def _first(law, records):
    """Return the first finding of a law that is broken, or the first of all."""
    found = []
    for bucket, events, size in records:
        each = law(bucket, events, size)
        found.append(each._replace(words=f"With bucket={bucket}: {each.words}"))
    return next((each for each in found if not each.right), found[0])


def numbers(events, kind):
    """Return the numbers of the events of a kind."""
    return [number for each, number in events if each == kind]


def before_end(events):
    """Return the events until backward ends."""
    return events[: events.index(("backward ends", 0))]


def buckets_of(events, bucket):
    """Return the sizes of buckets that leave as soon as they are full."""
    sizes, filled = [], 0
    for number in numbers(events, "ready"):
        filled += number
        if filled >= bucket:
            sizes.append(filled)
            filled = 0
    return [*sizes, filled] if filled else sizes


def waited(bucket, events, size):
    """Whether each collective is waited for."""
    launched, waits = len(numbers(events, "launch")), len(numbers(events, "wait"))
    if waits < launched:
        return broken(
            WAITED,
            f"{launched} collectives, {waits} waits. What is in the buffers when the weights are "
            "updated?",
        )
    return kept(WAITED, "Nothing is in flight when the step ends.")


def complete(bucket, events, size):
    """Whether no more gradients have left than were there."""
    ready = launched = 0
    for kind, number in events:
        ready += number * (kind == "ready")
        launched += number * (kind == "launch")
        if launched > ready:
            return broken(COMPLETE, f"{launched} gradients were sent when {ready} were complete.")
    return kept(COMPLETE, "Each was complete when it was sent.")


def once(bucket, events, size):
    """Whether all gradients leave, once."""
    left = sum(numbers(events, "launch"))
    if left != size:
        return broken(
            ONCE,
            f"{left:,} numbers leave, and there are {size:,} gradients. Which bucket is never full?",
        )
    return kept(ONCE, f"All {size:,}.")


def full(bucket, events, size):
    """Whether buckets are of the sizes that they have when full."""
    right, found = buckets_of(events, bucket), numbers(events, "launch")
    if found != right:
        return broken(
            FULL,
            f"Buckets of {_list(found)} leave; full ones would be of {_list(right)}, in this order.",
        )
    return kept(FULL, f"Buckets of {_list(found)}.")


def early(bucket, events, size):
    """Whether every bucket but the last leaves before the next gradient is complete."""
    ends = list(accumulate(buckets_of(events, bucket)))[:-1]
    ready = launched = 0
    for kind, number in before_end(events):
        due = sum(end <= ready for end in ends)
        if kind == "ready" and launched < due:
            return broken(
                EARLY,
                f"{ready} gradients are complete and {due} buckets full, and {launched} have left. What calls you"
                " while backward runs?",
            )
        ready += number * (kind == "ready")
        launched += kind == "launch"
    return kept(
        EARLY, f"{len(ends)} of {len(ends) + 1} buckets leave while gradients are still to come."
    )


def runs_on(bucket, events, size):
    """Whether nothing is waited for before backward ends."""
    waits = len(numbers(before_end(events), "wait"))
    if waits:
        return broken(RUNS, f"Backward stops for {waits} waits. When do you need the sums?")
    return kept(RUNS, "All waits come after backward.")


def _equal(own, runs):
    for task, run in zip(own, runs, strict=True):
        expected, _ = one_rank(task)
        for rank, (weights, _, _) in enumerate(run):
            far = off(weights, expected)
            if far > NEAR:
                why = way_off(task, np.array([each for each, _, _ in run]))
                return broken(
                    EQUAL, f"Rank {rank} is off by {far:.1e} of the largest weight. {why}".strip()
                )
    return kept(EQUAL, "Even, uneven and empty shards, large buckets and small, three steps.")


def _list(sizes):
    return ", ".join(map(str, sizes)) or "no gradients"


def main():
    """Check a file with `attach`."""
    file, name = arguments("torch_step.py", '"your name"')
    with World(RANKS) as world:
        result = torch_findings(world, existing(file), name)
    end_with(result, "PyTorch")


if __name__ == "__main__":
    end_together(main)
