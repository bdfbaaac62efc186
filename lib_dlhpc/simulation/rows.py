"""The clock of a training step as rows of a Timeline."""

from functools import partial

import numpy as np

from lib_dlhpc.simulation.clock import Clock, Floats, Load
from lib_dlhpc.timeline import Timeline, columns


def rows(load: Load, step: Clock) -> list[Timeline]:
    """Return what every rank does in a step, from its start to the start of the next."""
    factor, sent = load.factor[step.step], load.sent
    segments, edges = _backward(load, step, factor)
    every = np.arange(load.ranks)
    row = partial(columns, ranks=load.ranks, source="simulated")
    compute = partial(row, rank=every, stream="compute")
    parts = [
        compute(kind="forward", name=0, names=["forward"], start=step.start, stop=step.forward_end),
        compute(
            kind="backward",
            name=np.reshape(segments, (-1, 1)),
            names=[f"backward {k}" for k in range(1, len(edges) - 1)] + ["backward to the input"],
            start=edges[segments],
            stop=edges[np.array(segments) + 1],
        ),
    ]
    if len(sent):
        parts.append(
            row(
                rank=every,
                stream="communication",
                kind="communication",
                name=np.arange(len(sent)).reshape(-1, 1),
                names=[f"bucket {k}" for k in range(1, len(sent) + 1)],
                start=step.joined,
                stop=step.exchanged,
                bytes=load.work.sizes[sent].reshape(-1, 1),
            )
        )
    parts += [
        late(row, "wait", "wait for the exchange", step.backward_end, step.exchange_end),
        compute(kind="update", name=0, names=["update"], start=step.exchange_end, stop=step.end),
    ]
    saving, fetch = float(load.saving[step.step]), load.fetch[step.step]
    saved = step.end + saving
    if saving:
        both = partial(row, rank=every, kind="checkpoint", name=0, start=step.end, stop=saved)
        parts.append(both(stream="compute", names=["wait for the checkpoint"]))
        parts.append(both(stream="checkpoint", names=["write a checkpoint"]))
    if fetch.any() or load.supply is not None:
        begun, ready = step.start, load.available(step.step, step.start)
        if load.supply is not None:
            begun = load.supply.begun[step.step + 1]
        fetched = partial(row, rank=every, stream="input", kind="input", start=begun)
        parts.append(fetched(name=0, names=["fetch the next batch"], stop=ready))
        parts.append(late(row, "input", "wait for input", saved, ready))
    return parts


def _backward(load: Load, step: Clock, factor: Floats) -> tuple[list[int], Floats]:
    """Return which segments backward has, one a bucket and a rest, and the edges of all of them."""
    ready = step.forward_end + factor * np.reshape(load.work.ready, (-1, 1))
    # Backward ends where its sum says; the last segment may be longer than nothing by rounding only.
    ready = np.minimum(ready, step.backward_end)
    edges = np.vstack([step.forward_end, ready, step.backward_end])
    count = len(ready)
    segments = [k for k in range(count + 1) if k < count or (edges[k + 1] > edges[k]).any()]
    return segments, edges


def late(row: "partial[Timeline]", kind: str, name: str, since: Floats, until: Floats) -> Timeline:
    """Return the time that those ranks, the last axis, are idle, where `until` comes after `since`."""
    at = np.nonzero(until > since)
    still = partial(row, rank=at[-1], stream="compute", kind=kind, name=0, names=[name])
    return still(start=since[at], stop=until[at])
