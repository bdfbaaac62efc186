"""Local updates: every rank takes H steps by itself, then all average their weights.

Nothing hides the exchange, for the weights are known only after the last update. To the exchange the
H steps and the average are one long step, and are simulated so; how the jitter of H steps averages out
is half of the gain. Source: Lin et al., "Don't use large mini-batches, use local SGD" (2020).
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from lib_dlhpc.costs.work import Work
from lib_dlhpc.simulation.clock import Clock, Floats, Load
from lib_dlhpc.simulation.rows import late
from lib_dlhpc.timeline import Timeline, columns


def together(load: Load, every: int) -> tuple[Load, Callable[[Load, Clock], list[Timeline]]]:
    """Return `every` steps at a time as one, and what gives the rows of such a long step.

    load.steps must be a multiple of `every`.
    """
    shape = (load.steps // every, every)
    work, factor = load.work, load.factor.reshape(*shape, -1)
    fetch, saving = load.fetch.reshape(*shape, -1), load.saving.reshape(*shape, 1)
    busy = factor * (work.forward + work.backward + load.update)
    begin = np.zeros_like(busy)  # s after the begin of the first
    for step in range(1, every):
        last, end = begin[:, step - 1], begin[:, step - 1] + busy[:, step - 1]
        begin[:, step] = np.maximum(end + saving[:, step - 1], last + fetch[:, step - 1])
    long = Load(
        work=Work(1.0, 0.0, np.zeros(len(work.sizes)), work.sizes),
        update=0.0,
        overlap=False,
        factor=begin[:, -1] + busy[:, -1],
        fetch=begin[:, -1] + fetch[:, -1],
        saving=saving[:, -1, 0],
    )
    return long, lambda _, clock: _rows(load, every, begin[clock.step], clock)


def _rows(load: Load, every: int, begin: Floats, clock: Clock) -> list[Timeline]:
    """Return what every rank does from one average to the next; begin: s of each step, (every, ranks)."""
    of_these = slice(clock.step * every, (clock.step + 1) * every)
    factor, fetch, saving = load.factor[of_these], load.fetch[of_these], load.saving[of_these]
    ranks, sent = np.arange(load.ranks), load.sent
    row = partial(columns, ranks=load.ranks, source="simulated")
    compute = partial(row, rank=ranks, stream="compute", name=0)
    start = clock.start + begin
    forward_end, backward_end = load.computed(start, factor)
    end = load.finished(backward_end, factor)
    done = np.vstack([end[:-1], clock.exchange_end[None]])  # of the last step: also averaged
    saved, ready = done + saving[:, None], start + fetch
    parts = [
        compute(kind="forward", names=["forward"], start=start, stop=forward_end),
        compute(kind="backward", names=["backward"], start=forward_end, stop=backward_end),
        compute(kind="update", names=["update"], start=backward_end, stop=end),
        late(row, "wait", "wait for the average", end[-1:], done[-1:]),
        late(row, "checkpoint", "wait for the checkpoint", done, saved),
    ]
    if len(sent):
        parts.append(
            row(
                rank=ranks,
                stream="communication",
                kind="communication",
                name=np.arange(len(sent)).reshape(-1, 1),
                names=[f"bucket {k}" for k in range(1, len(sent) + 1)],
                start=clock.joined,
                stop=clock.exchanged,
                bytes=load.work.sizes[sent].reshape(-1, 1),
            )
        )
    if saving.any():
        at = np.flatnonzero(saving)
        write = partial(row, rank=ranks, stream="checkpoint", kind="checkpoint", name=0)
        parts.append(write(names=["write a checkpoint"], start=done[at], stop=saved[at]))
    if fetch.any():
        fetched = partial(row, rank=ranks, stream="input", kind="input", name=0)
        parts.append(fetched(names=["fetch the next batch"], start=start, stop=ready))
        parts.append(late(row, "input", "wait for input", saved, ready))
    return parts
