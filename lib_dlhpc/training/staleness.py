"""Updates of an asynchronous run, their staleness and times: as counts and as rows of a Timeline.

The rows are those of a simulated run: "push" lasts until the server starts on the gradient, queueing
included; "update" is the time in which the first server applies it; "pull" begins when that server releases
the weights. The servers are not ranks of the table: their activity is in the rows of the worker that waits.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.training.record import MOST_STEPS, Recorder


@dataclass(frozen=True, eq=False)
class Updates:
    """The updates of a run, in the order in which the first server applied them."""

    worker: Array
    staleness: Array  # updates applied since its weights were pulled

    @property
    def histogram(self) -> Array:
        """Number of updates with staleness 0, 1, 2, ..."""
        return np.bincount(self.staleness)

    def as_dict(self) -> dict[str, Any]:
        """Return mean, largest and histogram as plain values, ready for JSON."""
        return {
            "mean": float(self.staleness.mean()),
            "largest": int(self.staleness.max()),
            "histogram": self.histogram.tolist(),
        }


class ServerTimes(NamedTuple):
    """Server times of one gradient, in s of the server's clock."""

    applying: float
    applied: float
    released: float  # the worker may have the weights


class WorkerTimes(NamedTuple):
    """Worker times of one gradient, in s of the worker's clock."""

    push: float  # begin
    pulled: float  # end


@dataclass
class Log:
    """What a server records."""

    updates: list[tuple[int, int]] = field(default_factory=list)  # worker, staleness
    served: dict[int, list[ServerTimes]] = field(
        default_factory=dict
    )  # of each worker, step by step

    def as_updates(self) -> Updates | None:
        """Return the updates as arrays; None if there were none."""
        if not self.updates:
            return None
        worker, staleness = np.array(self.updates, np.int64).T
        return Updates(worker, staleness)


def add_rows(
    recorder: Recorder,
    worker: int,
    asked: list[WorkerTimes],
    served: list[ServerTimes],
    ahead: float,
    size: int,
) -> None:
    """Add the first server's events to a worker's rows.

    ahead: s by which the server's clock is ahead of the worker's. Clock offsets are known to some microseconds;
    times outside of push and pull are clipped to their limits. size: B in each direction.
    """
    recorder.on = True
    for (begin, end), times in zip(asked[:MOST_STEPS], served[:MOST_STEPS], strict=True):
        applying, applied, released = np.clip(np.array(times) - ahead, begin, end).tolist()
        for name, start, stop in (("push", begin, applying), ("pull", released, end)):
            words = f"{name}, worker {worker}"
            recorder.message(words, start, stop, size)
        recorder.add("wait", "wait for the servers", begin, applying)
        recorder.add("update", "update", applying, applied)
        recorder.add("wait", "wait for the slowest", applied, released)
        recorder.add("wait", "wait for the weights", released, end)
