"""The findings on a learner's loader: by what it yields and requests, never by the clock.

loader_findings(prepare, batches, own)   nine findings
same_finding(own, run, found)            whether batches are those of the script
shared_finding(own, every, seen, law)    whether ranks give each sample once
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.labs.findings import Finding, broken, kept, later
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.repair_the_input.file_calls import METADATA
from lib_dlhpc.labs.repair_the_input.loader import (
    PATIENCE,
    Batches,
    LoaderRecord,
    large_run,
    prepared,
    run_loader,
    run_of,
    step_time,
)
from lib_dlhpc.labs.repair_the_input.task import EPOCHS, InputTask, Run, expected
from lib_dlhpc.spec.units import format_quantity as show_quantity

RANKS = 3
ROOM = 6  # batches that a GPU's share of memory holds
MARGIN = 0.02  # above a step that waits for nothing
SAME = "The samples and their order are the script's"
SHARED = f"On {RANKS} ranks: each sample once per epoch"
STORE = "Each sample is read from the packed store, once per epoch"
NONE = "No list, stat, open or close per sample"
ONE = "One request per batch"
DECODE = "No sample is decoded twice"
AHEAD = "The next batch is requested while the current one is in training"
MEMORY = f"No more than {ROOM} batches at once"
TARGET = "Target: on the shared file system the GPUs never wait"
COUNTED = (STORE, NONE, ONE, DECODE, AHEAD, MEMORY, TARGET)


def loader_findings(
    prepare: Callable[..., Any],
    batches: Callable[..., Any],
    own: InputTask,
    patience: float = PATIENCE,
) -> list[Finding]:
    """Return what holds for a loader, on one rank and on several. patience: s, as of run_loader."""
    rest = [later(law) for law in COUNTED]
    try:
        with prepared(prepare, own) as target:
            record = run_loader(batches, own, target, run_of(own), patience)
            same = same_finding(own, run_of(own), record.batches)
            if not same.right:
                return [same, later(SHARED), *rest]
            return [same, _shared(batches, own, target), *_counted(own, record)]
    except LabError as error:
        return [broken(SAME, str(error)), later(SHARED), *rest]


def same_finding(own: InputTask, run: Run, found: Batches, law: str = SAME) -> Finding:
    """Return whether the batches are those of the script, bit for bit."""
    right = list(expected(own, run))
    if all(
        len(a) == len(b) and all(map(_alike, a, b)) for a, b in zip(found, right, strict=False)
    ) and len(found) == len(right):
        return kept(law, f"{run.epochs} epochs of {own.samples} samples, bit for bit.")
    flat, wanted = _keys(found), _keys(right)
    if flat == wanted:
        sizes = [len(each) for each in found]
        return broken(
            law, f"All samples are there, in order, but in batches of {sizes[:3]} ... {sizes[-1:]}."
        )
    unknown = sum(1 for each in flat if each not in {*wanted})
    if unknown:
        return broken(
            law,
            f"{unknown} of {len(flat)} are not samples of the script. Are they decoded, and "
            "complete?",
        )
    if Counter(flat) == Counter(wanted):
        return broken(law, _order(flat, wanted, run))
    if not flat:
        words = (
            "No samples arrived. What does `prepare` leave at `target`, and what does "
            "`batches` look for there?"
        )
        return broken(law, words)
    many = f"{len(flat)} samples arrived where the script yields {len(wanted)}"
    short = len(wanted) - len(flat)
    if 0 < short < run.batch * run.epochs:
        return broken(law, f"{many}. What happens to the last, short batch of an epoch?")
    return broken(law, f"{many}, or some arrived twice and others never.")


def _order(flat: list[bytes], wanted: list[bytes], run: Run) -> str:
    size = len(wanted) // run.epochs
    if flat[:size] == wanted[:size]:
        return (
            "The first epoch has the script's order, but the next one does not. What does its "
            "shuffle start from?"
        )
    if sorted(flat[:size]) == sorted(wanted[:size]):
        return (
            "An epoch has all samples, but in a different order. In which order are they before the shuffle, and what"
            " is the seed of the shuffle?"
        )
    return "All samples are there, but not exactly once per epoch."


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other)


def _keys(found: Batches) -> list[bytes]:
    return [str(one.dtype).encode() + one.tobytes() for batch in found for one in batch]


def _shared(batches: Callable[..., Any], own: InputTask, target: Path) -> Finding:
    """Return whether each rank yields its own shard; the samples do not divide evenly."""
    seen: Counter[bytes] = Counter()
    every = []
    for rank in range(RANKS):
        run = run_of(own, rank, RANKS, epochs=1)
        try:
            found = run_loader(batches, own, target, run, patience=0.0).batches
        except LabError as error:
            return broken(SHARED, f"Rank {rank} of {RANKS}: {error}")
        seen.update(_keys(found))
        every.append((run, found))
    return shared_finding(own, every, seen, SHARED)


def shared_finding(
    own: InputTask, every: list[tuple[Run, Batches]], seen: Counter[bytes], law: str
) -> Finding:
    """Return whether all ranks together yield each sample once, and each rank the samples of the script."""
    missing, twice = own.samples - len(seen), sum(count > 1 for count in seen.values())
    if missing or twice:
        return broken(
            law,
            f"In one epoch {missing} of {own.samples} samples are seen by no rank, {twice} more than once. Which"
            " samples does a rank read if the number of ranks does not divide the number of samples?",
        )
    for run, found in every:
        part = same_finding(own, run, found, law)
        if not part.right:
            return broken(law, f"Rank {run.rank}: {part.words}")
    return kept(law, f"{own.samples} samples, even if the number of ranks does not divide them.")


def _counted(own: InputTask, record: LoaderRecord) -> list[Finding]:
    found = [_store(record), _none(record)]
    found += [_one(record) if found[0].right else later(ONE, "Checked as soon as a store is used.")]
    found += [_decode(record)]
    if found[0].right:
        found += [_ahead(record), _memory(own, record)]
    else:
        found += [later(law, "Checked as soon as a store is used.") for law in (AHEAD, MEMORY)]
    return [*found, _target(own, record, all(each.right for each in found))]


def _store(record: LoaderRecord) -> Finding:
    files, given = record.counts.files, record.given
    if record.counts.programs:
        return broken(
            STORE,
            "Your code started another program, whose reads cannot be counted. Do without it.",
        )
    if not files:
        return broken(
            STORE,
            "No packed store is used. What could `prepare` write to `target` once, in place of all these files?",
        )
    if files < given:
        return broken(
            STORE,
            f"{files} were requested, {given} were yielded. Samples were cached, but the large run has a million, more"
            " than a node can hold.",
        )
    if files > given:
        return broken(STORE, f"{files} were requested, and {given} were yielded.")
    return kept(STORE, f"{given} samples in {EPOCHS} epochs.")


def _none(record: LoaderRecord) -> Finding:
    calls = record.epoch.calls
    if record.epoch.metadata:
        made = ", ".join(f"{calls[kind] / record.samples:.3g} {kind}" for kind in METADATA)
        return broken(
            NONE,
            f"In the second epoch, per sample: {made}. What of this was already known in the first "
            "epoch, and what could be known before?",
        )
    if record.epoch.stores:
        return broken(NONE, "The store is opened again in the second epoch. Has its index changed?")
    return kept(NONE, "None in the second epoch, and the store is opened once.")


def _one(record: LoaderRecord) -> Finding:
    requests, many = record.counts.requests, len(record.batches)
    if requests > many:
        return broken(
            ONE,
            f"{requests} requests for {many} batches. Each waits for its first byte before the "
            "next one starts: where are all names of a batch known at once?",
        )
    return kept(ONE, f"{requests} requests for {many} batches.")


def _decode(record: LoaderRecord) -> Finding:
    shown = f"{record.decodes} samples were decoded, {record.given} were given"
    if record.decodes > record.given:
        return broken(DECODE, f"{shown}. Which samples are decoded needlessly?")
    return kept(DECODE, f"{shown}.")


def _ahead(record: LoaderRecord) -> Finding:
    shown = f"During {record.ahead} of {record.chances} batches the next batch of the epoch was requested"
    if record.ahead < record.chances:
        return broken(AHEAD, f"{shown}. What does storage do while the GPU computes?")
    return kept(AHEAD, f"{shown}.")


def _memory(own: InputTask, record: LoaderRecord) -> Finding:
    shown = f"{record.most / own.batch:.3g} batches at most had been requested but not yet yielded"
    if record.most > ROOM * own.batch:
        return broken(
            MEMORY, f"{shown}. How far ahead is enough to hide a read that takes less than a step?"
        )
    return kept(MEMORY, f"{shown}.")


def _target(own: InputTask, record: LoaderRecord, right: bool) -> Finding:
    found, step, compute = large_run(own, record), step_time(own, record), own.batch / own.speed
    shown = (
        f"On {own.readers} GPUs a step would take {show_quantity(step, 's')}; they compute"
        f" {show_quantity(compute, 's')} of it, and a batch arrives in "
        f"{show_quantity(float(found.fetch), 's')}"
    )
    if step > (1 + MARGIN) * compute:
        return broken(TARGET, f"{shown}: {found.why}.")
    if not right:
        return later(TARGET, f"{shown}; this counts once the checks above hold.")
    return kept(TARGET, f"{shown}, behind it.")
