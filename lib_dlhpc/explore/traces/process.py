"""A command that a page starts: in a session of its own, ended with all that it started, reported by its last words."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import TimeoutExpired

from lib_dlhpc.explore.blocks.ranks import to_its_end
from lib_dlhpc.launch.mpi import environment
from lib_dlhpc.lifetime import owned

DLHPC = (sys.executable, "-m", "lib_dlhpc.cli")
PATIENCE = 150.0  # s


class RunError(RuntimeError):
    """The command failed; the text says why."""


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """Yield a new folder that is gone afterwards; RunError names it where something in it cannot be used."""
    folder = owned.make_folder(prefix)
    try:
        yield folder
    except OSError as error:
        raise RunError(f"{folder}: {error.strerror or error}.") from None
    finally:
        owned.remove_folder(folder)


def through(words: tuple[str, ...], folder: Path, stop: threading.Event) -> str:
    """Run `dlhpc WORDS` to its end and return what it printed; its output and its own files lie in the folder.

    Raises Cancelled when `stop` is set, RunError where it fails or takes more than PATIENCE s. Nothing of it goes on
    afterwards, however it ends; what it may have left lies in the folder, for the caller to remove.
    """
    output, log = folder / "output.txt", folder / "log.txt"
    with open(output, "wb") as out, open(log, "wb") as errors:
        options = {"stdout": out, "stderr": errors, "env": {**environment(), "TMPDIR": str(folder)}}
        try:
            code = to_its_end([*DLHPC, *words], stop, PATIENCE, **options)
        except TimeoutExpired:
            raise RunError(f"It took more than {PATIENCE:g} s: this machine is busy.") from None
    if code:
        raise RunError(f"It ended with an error: {_last_words(log)}")
    return output.read_text("utf-8", "replace")


def _last_words(log: Path) -> str:
    """Return the last line that names an error, or the last there is."""
    lines = list(filter(None, map(str.strip, log.read_text("utf-8", "replace").splitlines())))
    named = [line for line in lines if "Error: " in line or line.startswith("dlhpc: ")]
    return (named or lines or ["it said nothing."])[-1]
