"""How stale gradients get: asynchronous steps as rows of a Timeline, and the updates read from the rows.

A worker's forward, backward and wait stand in its rows as ever; "update" is the time in which the first
server applies its gradient, for which it waits, too. "push" lasts until the gradient's turn has come,
the queue included; "pull" begins when the server lets the weights go. Both name their worker, for no
other one has a part in them.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.simulation.asynchronous import AsynchronousRun, ServedSteps, Worker
from lib_dlhpc.simulation.conditions import Conditions
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline, columns, join

BARS = 8  # of the histogram in words


def rows(
    conditions: Conditions, worker: Worker, served: ServedSteps, parameter_bytes: float
) -> Timeline:
    """Return what every worker does; the servers are no ranks of the table."""
    every, saving = np.arange(conditions.ranks), conditions.saving
    row = partial(columns, ranks=conditions.ranks, source="simulated")
    compute = partial(row, rank=every, stream="compute", name=0)
    forward_end, backward_end = worker.computed(served.start, conditions.factor)
    saved = served.pulled + saving[:, None]
    ready = served.start + conditions.fetch
    exchange = partial(
        row, stream="communication", kind="communication", name=every, bytes=parameter_bytes
    )
    words = [f"worker {number}" for number in every]
    parts = [
        compute(kind="forward", names=["forward"], start=served.start, stop=forward_end),
        compute(kind="backward", names=["backward"], start=forward_end, stop=backward_end),
        exchange(
            rank=every,
            names=[f"push, {word}" for word in words],
            start=backward_end,
            stop=served.applying,
        ),
        compute(kind="update", names=["update"], start=served.applying, stop=served.applied),
        exchange(
            rank=every,
            names=[f"pull, {word}" for word in words],
            start=served.released,
            stop=served.pulled,
        ),
        _late(row, "wait", "wait for the servers", backward_end, served.applying),
        _late(row, "wait", "wait for the slowest", served.applied, served.released),
        _late(row, "wait", "wait for the weights", served.released, served.pulled),
        _late(row, "checkpoint", "wait for the checkpoint", served.pulled, saved),
    ]
    if saving.any():
        write = partial(row, rank=every, stream="checkpoint", kind="checkpoint", name=0)
        rows_saving = np.flatnonzero(saving)
        parts.append(
            write(
                names=["write a checkpoint"],
                start=served.pulled[rows_saving],
                stop=saved[rows_saving],
            )
        )
    if conditions.fetch.any():
        fetched = partial(row, rank=every, stream="input", kind="input", name=0)
        parts.append(fetched(names=["fetch the next batch"], start=served.start, stop=ready))
        parts.append(_late(row, "input", "wait for input", saved, ready))
    return join(parts).sorted()


def _late(row: "partial[Timeline]", kind: str, name: str, since: Floats, until: Floats) -> Timeline:
    """Return the time that those ranks, the last axis, are idle, where `until` comes after `since`."""
    late = np.nonzero(until > since)
    still = partial(row, rank=late[-1], stream="compute", kind=kind, name=0, names=[name])
    return still(start=since[late], stop=until[late])


def updates(timeline: Timeline) -> AsynchronousRun:
    """Return the updates that the rows of asynchronous steps record, in the order of application."""
    made, pulls, worker = _made_and_pulled(timeline)
    order = np.argsort(made, axis=None, kind="stable")
    time = made.reshape(-1)[order]
    known = np.searchsorted(time, pulls, side="right")  # updates in the weights that are pulled
    before = np.hstack([np.zeros((timeline.ranks, 1), np.int64), known[:, :-1]])
    return AsynchronousRun(
        time, worker.reshape(-1)[order], np.arange(len(time)) - before.reshape(-1)[order]
    )


def held_back(timeline: Timeline) -> Floats:
    """Return the s that each worker waits for weights because it is too far ahead, (workers,)."""
    made, pulls, _ = _made_and_pulled(timeline)
    return np.asarray((pulls - made).sum(axis=1))


def _made_and_pulled(timeline: Timeline) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return when each update is applied, when its pull begins and whose it is, (workers, steps)."""
    made = timeline.select(timeline.where("compute", "update")).sorted()
    talk = timeline.select(timeline.where("communication")).sorted()
    shape = (timeline.ranks, -1)
    pulls = talk.start.reshape(shape)[:, 1::2]  # after each push
    return made.stop.reshape(shape), pulls, made.rank.reshape(shape).astype(np.int64)


def report(timeline: Timeline) -> str:
    """Return a line with the staleness of the gradients of asynchronous steps, and their histogram."""
    run = updates(timeline)
    return (
        f"  staleness of {len(run.time):,} updates: mean {run.staleness.mean():,.1f}, largest"
        f" {run.staleness.max():,}; {show(run.rate, '')} updates/s\n"
        f"    {', '.join(f'{label}: {share:.0%}' for label, share in _bars(run.histogram))}"
    )


def as_dict(timeline: Timeline) -> dict[str, object]:
    """Return the same as plain values, ready for JSON."""
    run = updates(timeline)
    return {
        "mean": float(run.staleness.mean()),
        "largest": int(run.staleness.max()),
        "histogram": run.histogram.tolist(),
        "updates_per_second": run.rate,
    }


def _bars(histogram: NDArray[np.int64]) -> list[tuple[str, float]]:
    """Return ranges of staleness and the share of updates in each, equally wide."""
    width = -(-len(histogram) // BARS)
    starts = range(0, len(histogram), width)
    total = histogram.sum()
    return [
        (
            f"{start}" if width == 1 else f"{start}-{min(start + width, len(histogram)) - 1}",
            float(histogram[start : start + width].sum() / total),
        )
        for start in starts
    ]
