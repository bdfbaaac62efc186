"""A simulation in a terminal: a line that says how far it is, Ctrl-C, and the trace it writes.

In a notebook, pass `simulate` a `progress` of your own.
"""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from lib_dlhpc.simulate.step import simulate
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline, export_chrome

MESSAGES = 50_000  # in a trace: some 20 MB, which a browser still opens
PATIENCE = 1.0  # s before a line is shown
PAUSE = 0.1  # s between two


def simulate_here(
    experiment: Experiment,
    fidelity: str,
    seed: int | None,
    steps: int,
    trace: str | None,
    messages: int | None,
) -> Timeline:
    """Return what `simulate` returns, and write it to the file `trace`, if any.

    messages: how many to write there (None: MESSAGES, with fidelity events); says on stderr if some are
    left out. Raises SpecError for mistakes, and KeyboardInterrupt that says how far it came.
    """
    if messages is not None and not trace:
        raise SpecError("--messages: how many to write into a trace; it needs --trace FILE.")
    if messages is None:
        messages = MESSAGES if trace and fidelity == "events" else 0
    line = ProgressLine(sys.stderr)
    try:
        timeline = simulate(experiment, fidelity, seed, steps, messages=messages, progress=line)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Cancelled: {line}.") from None
    finally:
        line.clear()
    if trace:
        try:
            export_chrome(timeline, trace)
        except OSError as error:
            raise SpecError(f"--trace {trace}: {error.strerror}.") from None
        if 0 < messages < line.delivered:
            print(
                f"dlhpc: {trace}: the first {messages:,} of {line.delivered:,} messages;"
                " --messages N writes more.",
                file=sys.stderr,
            )
    return timeline


class ProgressLine:
    """A `progress` for `simulate`; after it, `seconds` are simulated and `delivered` messages are there.

    It is silent where `stream` is no terminal and in the first second.
    """

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.now = stream, now
        self.seconds, self.delivered = 0.0, 0
        self._began = now()
        self._next = self._began + PATIENCE
        self._width = 0

    def __call__(self, seconds: float, delivered: int, total: int) -> None:
        """Note where the simulation is, and show it now and then."""
        self.seconds, self.delivered = seconds, delivered
        now = self.now()
        if now >= self._next and self.stream.isatty():
            self._next = now + PAUSE
            rate = delivered / (now - self._began)
            self._write(
                f"simulating {delivered / max(total, 1):4.0%}: {show(seconds, 's')} played,"
                f" {show(delivered, '')} of {show(total, '')} messages, {show(rate, '')} a second"
            )

    def __str__(self) -> str:
        return f"{show(self.seconds, 's')} had been simulated, with {self.delivered:,} messages"

    def clear(self) -> None:
        """Take the line away, so that what follows stands alone."""
        if self._width:
            self._write("")
            self.stream.write("\r")
            self._width = 0

    def _write(self, text: str) -> None:
        self.stream.write(f"\r{text:<{self._width}}")
        self.stream.flush()
        self._width = len(text)
