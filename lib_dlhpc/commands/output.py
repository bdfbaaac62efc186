"""What all commands print: a result on standard output, as text or JSON; progress, notes and errors on standard error.

--json     standard output is one JSON document, and nothing else
--quiet    standard error has errors only
"""

import argparse
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, TextIO

from lib_dlhpc.errors import SpecError

STDIN = "-"  # as the name of a file


def add_output(command: argparse.ArgumentParser, json: str = "print JSON in SI units") -> None:
    """Add --json and --quiet.

    They have no default here, which would override `dlhpc jobs --json list`: see `cli`.
    """
    unset: Any = argparse.SUPPRESS
    command.add_argument("--json", action="store_true", default=unset, help=json)
    command.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        default=unset,
        help="print only the result and errors, no progress or notes",
    )


def given() -> TextIO:
    """Return standard input. Raises SpecError where it is closed."""
    if sys.stdin is None:
        raise SpecError("-: standard input is closed.")
    return sys.stdin


def standard_input() -> str:
    """Return the text on standard input. Raises SpecError where it is closed or no text."""
    try:
        return given().read()
    except UnicodeDecodeError as error:
        raise SpecError(f"-: standard input is not text: {error}.") from None


def new_file(option: str, name: str) -> Path:
    """Return the path of a result. Raises SpecError, before the work, where it cannot be written."""
    path = Path(name)
    if path.is_dir() or not path.parent.is_dir():
        raise SpecError(f"{option} {name}: {'a folder' if path.is_dir() else 'no such folder'}.")
    return path


def print_result(options: argparse.Namespace, data: Any, *lines: str) -> None:
    """Print `data` with --json, or else the lines."""
    if options.json:
        from lib_dlhpc.spec.plain import as_json

        print(as_json(data))
    elif lines:
        print("\n".join(lines))


def print_note(text: str) -> None:
    """Print progress or a remark to standard error; --quiet drops it."""
    print(text, file=sys.stderr, flush=True)


def print_error(text: str) -> None:
    """Print an error to standard error, with --quiet too."""
    print(text, file=getattr(sys.stderr, "loud", sys.stderr))


def failed(error: Exception) -> int:
    """Report work that failed, such as a run; return the exit status."""
    print_error(f"dlhpc: {error}")
    return 1


@contextmanager
def notes_of(options: argparse.Namespace) -> Iterator[None]:
    """Drop what is printed to standard error with --quiet, except by `print_error` and by child processes."""
    if options.quiet and sys.stderr:
        with redirect_stderr(_Quiet(sys.stderr)):
            yield
    else:
        yield


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send the output of child processes to standard error: with --json it would mix with the result."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


class _Quiet(io.TextIOBase):
    """A standard error that drops its text. loud: the one that prints."""

    def __init__(self, loud: TextIO) -> None:
        self.loud = loud

    def write(self, text: str) -> int:
        return len(text)

    def fileno(self) -> int:
        return self.loud.fileno()
