"""Messages as rows of a Timeline: source, target, size, and the interval in flight."""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from lib_dlhpc.timeline import Timeline, columns

Row: TypeAlias = tuple[int, int, float, float, float, int | str]


@dataclass(frozen=True)
class Recorder:
    """The `record` of a Simulation that keeps the first `most` messages to arrive."""

    most: int
    rows: list[Row] = field(default_factory=list)

    def __call__(
        self, source: int, target: int, start: float, stop: float, bytes: float, what: int | str
    ) -> None:
        """Keep one message; `what`: the number of its round, or words."""
        if len(self.rows) < self.most:
            self.rows.append((source, target, start, stop, bytes, what))

    def timeline(self, ranks: int) -> Timeline:
        """Return a row a message on the sender's stream communication, with the receiver as peer."""
        source, target, start, stop, size, what = (
            zip(*self.rows, strict=True) if self.rows else [()] * 6
        )
        numbers = {word: number for number, word in enumerate(dict.fromkeys(what))}
        return columns(
            rank=np.array(source, np.int64),
            stream="communication",
            kind="communication",
            name=np.array([numbers[word] for word in what], np.int64),
            names=[f"round {word}" if isinstance(word, int) else word for word in numbers],
            start=np.array(start, np.float64),
            stop=np.array(stop, np.float64),
            bytes=np.rint(np.array(size, np.float64)),
            peer=np.array(target, np.int64),
            ranks=ranks,
            source="simulated",
        )
