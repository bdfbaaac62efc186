"""Checks of lab 7: does the formula hold, does the loader give what the script gives, and what does it ask for?

In the notebook:   task(NAME), script(NAME), profile(NAME), check_rate(rate, NAME),
                   check(prepare, batches, NAME), race(prepare, batches, NAME), on_ranks(NAME, all three)
In a terminal:     python checks.py step.py "your name"                  all eleven laws, no clock
                   mpiexec -n 4 python checks.py step.py "your name"     the loader on real ranks; srun works as well
"""

from collections import Counter
from pathlib import Path

from lib_dlhpc.explore.labs.lab import save_and_run, say, show
from lib_dlhpc.labs.attempts import report
from lib_dlhpc.labs.findings import broken, kept, passed, seed_of
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.program import arguments, end_together, end_with, handed_in
from lib_dlhpc.labs.repair_the_input.laws import NONE, ONE, ROOM, loader_findings, shared_finding
from lib_dlhpc.labs.repair_the_input.loader import large_run, prepared, run_loader, run_of
from lib_dlhpc.labs.repair_the_input.profile import (
    PARTS,
    largest_part,
    profile_text,
    profiled,
    race_text,
)
from lib_dlhpc.labs.repair_the_input.profile import script as functions_of
from lib_dlhpc.labs.repair_the_input.task import ENDING, OTHER, original, rate_findings, task_of
from lib_dlhpc.spec.units import format_quantity as show_quantity

HERE = Path(__file__).parent
NAMES = ("rate", "prepare", "batches")
ANSWERS = tuple(PARTS.values())


def own_of(name):
    """Return the learner's own task."""
    return task_of(seed_of(name))


def task(name):
    """Return the learner's task in words."""
    own = own_of(name)
    return say(
        f"Here: {own.samples} samples, files *{ENDING} in {own.classes} folders; {OTHER} beside them is not a sample;"
        f" batches of {own.batch}; room for {ROOM} batches.\n"
        f"The large run: a million samples of {show_quantity(own.sample, 'B')}, a file each; {own.readers} GPUs with"
        f" a reader each, {own.speed:.0f} samples/s per GPU, {own.readers * own.speed:.0f} in all; batches of"
        f" {own.batch} per GPU; decoding a sample takes {show_quantity(own.decode, 's')}.\n"
        f"Its shared file system: {show_quantity(own.metadata_rate, 'op/s')} of its metadata servers,"
        f" {show_quantity(own.bandwidth, 'B/s')} in all;\n"
        f"one reader waits {show_quantity(own.operation_latency, 's')} for an operation,"
        f" {show_quantity(own.read_latency, 's')} for the first byte of a read, and then gets"
        f" {show_quantity(own.reader_bandwidth, 'B/s')}."
    )


def script(name):
    """Return the learner's script for the page."""
    return say(original(own_of(name)))


def profile(name, prepare=None, batches=None):
    """Return what a loader asks for, for the page; the script where none is given."""
    given = (prepare, batches) if prepare and batches else functions_of(own_of(name))
    try:
        return say(profile_text(own_of(name), *given))
    except LabError as error:
        return say(str(error))


def largest(name):
    """Return what a reader of the large run waits for the most, with the script."""
    return largest_part(own_of(name))


def check_rate(rate, name):
    """Return the findings on the formula for the page, and what it says of the script."""
    own = own_of(name)
    found = rate_findings(rate, own)
    below = ""
    if passed(found):
        come = float(large_run(own, profiled(own, *functions_of(own))).rate)
        below = (
            f"With your script {come:.0f} samples/s arrive, while the GPUs could take"
            f" {own.readers * own.speed:.0f}: they compute {min(1, come / own.readers / own.speed):.0%} of the time."
        )
    return show(found, "Your formula", below)


def check(prepare, batches, name):
    """Return the findings on the loader for the page."""
    return show(loader_findings(prepare, batches, own_of(name)), "Your loader")


def race(prepare, batches, name):
    """Return both loaders' samples a second on this machine, for the page."""
    try:
        return say(race_text(own_of(name), prepare, batches))
    except Exception as error:  # the learner's loader may raise whatever it likes
        return say(f"{type(error).__name__}: {error}")


def findings(given, name):
    """Return what holds for all that is handed in: functions by their names in NAMES."""
    rate, prepare, batches = (given[each] for each in NAMES)
    own = own_of(name)
    return [*rate_findings(rate, own), *loader_findings(prepare, batches, own)]


def on_ranks(name, rate, prepare, batches, ranks=4):
    """Save the cells as step.py and run the loader on MPI ranks, once all its laws hold."""
    if not passed(loader_findings(prepare, batches, own_of(name))):
        return say("Not yet: your loader has to pass first.")
    return save_and_run(HERE, name, (rate, prepare, batches), ranks)


def main():
    """Check step.py; on several ranks, let them read together."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    file, name = arguments("step.py", '"your name"')
    given = handed_in(file, NAMES)
    if comm.size == 1:
        end_with(findings(given, name))
    own = own_of(name)
    run = run_of(own, comm.rank, comm.size, epochs=2)._replace(comm=comm)
    if comm.rank == 0:
        with prepared(given["prepare"], own) as target:
            comm.bcast(target)
            record = run_loader(given["batches"], own, target, run)
            every = comm.gather(record)
    else:
        every = comm.gather(run_loader(given["batches"], own, comm.bcast(None), run))
    if comm.rank == 0:
        print(f"{comm.size} real ranks\n{report(_together(own, every))}")


def _together(own, every):
    """Return what holds for what all ranks gave in the first epoch, and asked for in the second."""
    first = [record.batches[: len(record.batches) // 2] for record in every]
    seen = Counter(one.tobytes() for found in first for batch in found for one in batch)
    runs = [run_of(own, rank, len(every), epochs=1) for rank in range(len(every))]
    shared = shared_finding(
        own, list(zip(runs, first, strict=True)), seen, "Each sample once per epoch"
    )
    operations = [record.epoch.metadata for record in every]
    requests = [record.counts.requests / max(len(record.batches), 1) for record in every]
    none = (broken if any(operations) else kept)(
        NONE, f"In the second epoch: {', '.join(map(str, operations))}."
    )
    one = (broken if max(requests) > 1 else kept)(
        ONE, f"{max(requests):.3g} requests per batch, whichever rank holds its samples."
    )
    return [shared, none, one]


if __name__ == "__main__":
    end_together(main)
