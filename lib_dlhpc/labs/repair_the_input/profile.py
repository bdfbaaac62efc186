"""A learner's loader on this machine, compared with the script: its calls and their times.

profile_text(own, prepare, batches)      calls of each kind a sample, and their times on this machine
race_text(own, prepare, batches)         samples/s beside the script's, taken in turns
largest_part(own)                        what a reader of the large run waits for the most, with the script
"""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from lib_dlhpc.labs.repair_the_input.file_calls import KINDS
from lib_dlhpc.labs.repair_the_input.loader import (
    LoaderRecord,
    large_run,
    prepared,
    run_loader,
    run_of,
)
from lib_dlhpc.labs.repair_the_input.task import InputTask, loaded, original
from lib_dlhpc.spec.units import format_quantity as show_quantity

PARTS = {
    "metadata": "metadata: list, stat, open, close",
    "read latency": "the first byte of each read",
    "transfer": "the bytes",
    "decoding": "decoding",
}
ROUNDS = 3


def script(own: InputTask) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return prepare and batches of the learner's script."""
    scope = loaded(original(own))
    return scope["prepare"], scope["batches"]


def profiled(
    own: InputTask, prepare: Callable[..., Any], batches: Callable[..., Any]
) -> LoaderRecord:
    """Return what a loader gave and asked for, on one rank. Raises LabError."""
    with prepared(prepare, own) as target:
        return run_loader(batches, own, target, run_of(own))


def profile_text(own: InputTask, prepare: Callable[..., Any], batches: Callable[..., Any]) -> str:
    """Return a table: calls of each kind for a sample in the second epoch, and s here. Raises LabError."""
    record = profiled(own, prepare, batches)
    given, counts = max(record.given, 1), record.counts
    lines = ["           per sample        whole run  each, on this machine"]
    for kind in KINDS:
        many = counts.calls[kind]
        each = show_quantity(record.seconds[kind] / many, "s") if many else "-"
        lines.append(
            f"{kind:10} {record.epoch.calls[kind] / record.samples:10.3f} {many:16} {each:>22}"
        )
    for name, many in (("requests to a store", counts.requests), ("decoded", record.decodes)):
        lines.append(f"{name:20} {many / given:.3f} per sample, {many} in all")
    lines.append(f"{'stores opened':20} {counts.stores}")
    return "\n".join(lines)


def largest_part(own: InputTask) -> str:
    """Return what a reader of the large run waits for the most with the learner's script."""
    parts = large_run(own, profiled(own, *script(own))).reader
    return PARTS[max(PARTS, key=lambda part: parts[part])]


def race_text(own: InputTask, prepare: Callable[..., Any], batches: Callable[..., Any]) -> str:
    """Return how many samples a second both loaders give here, taken in turns, and why it is no mark."""
    both = {"script": script(own), "yours": (prepare, batches)}
    with prepared(both["script"][0], own) as first, prepared(prepare, own) as second:
        places = {"script": first, "yours": second}
        took: dict[str, list[float]] = {name: [] for name in both}
        for _ in range(ROUNDS):
            for name, (_, loader) in both.items():
                took[name].append(_seconds(loader, own, places[name]))
    rates = {name: own.samples * run_of(own).epochs / min(times) for name, times in took.items()}
    return (
        f"Samples per second on this machine, the best of {ROUNDS} alternating runs: {rates['script']:.0f} with the"
        f" script, {rates['yours']:.0f} with yours, {rates['yours'] / rates['script']:.2f} times as many.\nBy now, all"
        " these files are in this machine's memory: nothing waits for a disk, a server or another node. Only Python"
        " calls and system calls can be saved here."
    )


def _seconds(loader: Callable[..., Any], own: InputTask, target: Path) -> float:
    start = perf_counter()
    for _ in loader(target, run_of(own)):
        pass
    return perf_counter() - start
