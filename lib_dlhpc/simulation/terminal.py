"""A simulation in a terminal: a progress line, Ctrl-C, and the trace file.

In a notebook, pass `simulate` a `progress` of your own.
"""

import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from lib_dlhpc.errors import SpecError
from lib_dlhpc.simulation.message_count import RATE
from lib_dlhpc.simulation.size import MOST_MESSAGES
from lib_dlhpc.simulation.step import check, simulate, simulate_terms
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Measured, Timeline, export_chrome

MESSAGES = 50_000  # in a trace: some 20 MB, which a browser still opens
PATIENCE = 1.0  # s before a line is shown
PAUSE = 0.1  # s between two
LONG = 10.0  # s that are announced
IN_ROUNDS = "passes and exchanges"  # what is counted


def simulate_here(
    experiment: Experiment,
    fidelity: str,
    seed: int | None,
    steps: int,
    trace: str | None,
    messages: int | None,
    message_limit: int | None = None,
    heading: str = "",
) -> Timeline:
    """Return what `simulate` returns, and write it to the file `trace`, if any.

    heading: printed on standard output as soon as it is known that it will be simulated. messages: how
    many to write into the trace (None: MESSAGES, with fidelity events); notes on stderr if some are left
    out, and before it begins if it will take long. Raises SpecError for mistakes, and KeyboardInterrupt
    that reports its progress.
    """
    if messages is not None and not trace:
        raise SpecError("--messages: how many to write into a trace; it needs --trace FILE.")
    if trace:
        _check_name(trace)
    if messages is None:
        messages = MESSAGES if trace and fidelity == "events" else 0
    in_rounds = fidelity == "rounds" and experiment.strategy.update != "asynchronous"
    line = ProgressLine(sys.stderr, unit=IN_ROUNDS if in_rounds else "messages")
    try:
        limit = MOST_MESSAGES if message_limit is None else message_limit
        drawn = experiment.run.seed if seed is None else seed
        sent = check(experiment, fidelity, drawn, steps, messages, limit)
        if heading:
            print(heading, flush=True)
        _warn(sent)
        options: dict[str, Any] = {"messages": messages, "message_limit": limit}
        timeline = simulate(experiment, fidelity, seed, steps, progress=line, **options)
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


def _check_name(trace: str) -> None:
    """Raise SpecError, before anything is simulated, for a file that could not be written or read."""
    if not Path(trace).parent.is_dir():
        raise SpecError(f"--trace {trace}: {os.strerror(errno.ENOENT)}.")
    if Path(trace).suffix in (".npz", ".otf2"):  # would hold JSON, which cannot be read
        raise SpecError(
            f"--trace {trace}: writes JSON; name a file that ends in .json, and `dlhpc trace convert` it."
        )


def terms_here(experiment: Experiment, seed: int | None, steps: int, heading: str = "") -> Measured:
    """Return what `simulate_terms` returns; heading and Ctrl-C are as in `simulate_here`."""
    line = ProgressLine(sys.stderr, unit=IN_ROUNDS)
    try:
        drawn = experiment.run.seed if seed is None else seed
        check(experiment, "rounds", drawn, steps, rows=False)
        if heading:
            print(heading, flush=True)
        return simulate_terms(experiment, seed, steps, progress=line)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Cancelled: {line}.") from None
    finally:
        line.clear()


def _warn(sent: int) -> None:
    """Print the estimated duration of the simulation of N messages, if it is long."""
    if sent > LONG * RATE:
        print(
            f"dlhpc: {sent:,} messages to follow one by one: {show(sent / RATE / 4, 's')} to"
            f" {show(sent / RATE, 's')} on an idle core.",
            file=sys.stderr,
        )


class ProgressLine:
    """A `progress` for `simulate`; after it, `seconds` are simulated and `delivered` messages have arrived.

    It is silent where `stream` is no terminal and in the first second.
    """

    def __init__(
        self, stream: TextIO, now: Callable[[], float] = time.monotonic, unit: str = "messages"
    ) -> None:
        self.stream, self.now, self.unit = stream, now, unit
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
            done = min(99, 100 * delivered // max(total, 1))  # all is done when the line is gone
            self._write(
                f"simulating {done:3d}%: {show(seconds, 's')} simulated,"
                f" {show(delivered, '')} of {show(total, '')} {self.unit}, {show(rate, '')} per second"
            )

    def __str__(self) -> str:
        return f"{show(self.seconds, 's')} had been simulated, with {self.delivered:,} {self.unit}"

    def clear(self) -> None:
        """Clear the progress line."""
        if self._width:
            self._write("")
            self.stream.write("\r")
            self._width = 0

    def _write(self, text: str) -> None:
        self.stream.write(f"\r{text:<{self._width}}")
        self.stream.flush()
        self._width = len(text)
