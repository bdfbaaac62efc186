"""Which updates an asynchronous run made, how stale they were, and when: as counts and as rows of a Timeline.

The rows are those of a simulated run: "push" lasts until the gradient's turn has come, the queue
included; "update" is the time in which the first server applies it; "pull" begins when that server lets
the weights go. The servers are no ranks of the table: what they do stands in the rows of the worker that
waits for it.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.training.layers.kept import Array
from lib_dlhpc.training.record import MOST_STEPS, Recorder


@dataclass(frozen=True, eq=False)
class Updates:
    """The updates of a run, in the order in which the first server applied them."""

    worker: Array
    staleness: Array  # updates that its weights had missed

    @property
    def histogram(self) -> Array:
        """How many updates were 0, 1, 2 ... updates stale."""
        return np.bincount(self.staleness)

    def as_dict(self) -> dict[str, Any]:
        """Return mean, largest and histogram as plain values, ready for JSON."""
        return {
            "mean": float(self.staleness.mean()),
            "largest": int(self.staleness.max()),
            "histogram": self.histogram.tolist(),
        }


class Served(NamedTuple):
    """When a server had to do with one gradient, in s of its clock."""

    applying: float
    applied: float
    released: float  # the worker may have the weights


class Asked(NamedTuple):
    """When its worker had, in s of the worker's clock."""

    push: float  # begin
    pulled: float  # end


@dataclass
class Log:
    """What a server takes down."""

    updates: list[tuple[int, int]] = field(default_factory=list)  # worker, staleness
    served: dict[int, list[Served]] = field(default_factory=dict)  # of each worker, step by step

    def as_updates(self) -> Updates | None:
        """Return the updates as arrays; None if there were none."""
        if not self.updates:
            return None
        worker, staleness = np.array(self.updates, np.int64).T
        return Updates(worker, staleness)


def add_rows(
    recorder: Recorder,
    worker: int,
    asked: list[Asked],
    served: list[Served],
    ahead: float,
    size: int,
) -> None:
    """Add to a worker's rows what the first server did for it in its first steps.

    ahead: s by which the server's clock is ahead of the worker's. Clocks are known to some microseconds;
    what would lie outside of push and pull is put at their edge. size: B that go each way.
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
