"""The same loader on a folder of files and on a packed store, on ranks of this machine, beside its prediction."""

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import TimeoutExpired

from lib_dlhpc.explore.blocks.panel import Panel, at_click
from lib_dlhpc.explore.blocks.ranks import to_its_end
from lib_dlhpc.explore.io_bottleneck.charts import measured_state
from lib_dlhpc.explore.io_bottleneck.here import FILES
from lib_dlhpc.explore.io_bottleneck.words import (
    WAYS,
    Read,
    Setting,
    outcome_words,
    rates,
    result_html,
)
from lib_dlhpc.launch.local import JobError
from lib_dlhpc.launch.mpi import command, environment
from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

MODULE = "lib_dlhpc.explore.io_bottleneck.here"
PATIENCE = 180.0  # s
# How an exception is printed, among mpiexec's own words.
ERROR = re.compile(r"\w+(Error|Lost|File|There|Folder): ")

Run = Callable[[Setting, threading.Event, Callable[[str], None]], Read]


def run(setting: Setting, stop: threading.Event, tell: Callable[[str], None]) -> Read:
    """Make files, calibrate, read. Raises JobError, SpecError, Cancelled; nothing is left in any case."""
    with owned.temporary_folder("dlhpc-input-") as folder:
        task = setting._asdict() | {"copies": setting.held}
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        words = command(setting.ranks, "-m", MODULE, str(folder), "read")
        tell(f"Writing {FILES:,} files, packing them, measuring what a file takes ...")
        _through(words[3:-1], folder, stop, 1)  # without mpiexec -n RANKS, and without "read"
        tell(f"{count(setting.ranks, 'rank')} read them: as files, and out of the store ...")
        _through(words, folder, stop, setting.ranks)
        reports = (json.loads((folder / f"{n}.json").read_text("utf-8")) for n in ("tier", "read"))
        return Read(*reports)


def _through(words: list[str], folder: Path, stop: threading.Event, ranks: int) -> None:
    """Run a program to its end, or until it is cancelled, or too late."""
    with open(folder / "log.txt", "wb") as log:
        options = {"stdout": log, "stderr": log, "env": environment(ranks)}
        try:
            code = to_its_end(words, stop, PATIENCE, **options)
        except TimeoutExpired:
            raise JobError(f"It took more than {PATIENCE:g} s: this machine is busy.") from None
    if code:
        files = [*sorted(folder.glob("error-*.txt")), folder / "log.txt"]
        lines = [line for file in files for line in file.read_text("utf-8", "replace").splitlines()]
        said = [*filter(ERROR.match, lines), *filter(str.strip, lines), "no output"]
        raise JobError(f"It ended with an error: {said[0]}")


def asked_words(setting: Setting) -> str:
    """Say what a click would read."""
    elsewhere = 1 - setting.held / setting.ranks
    many = " More ranks than cores: they share them." if setting.ranks > cores() else ""
    return (
        f"{FILES:,} files of {setting.size >> 10} KiB, {show(FILES * setting.size, 'B')}, by"
        f" {count(setting.ranks, 'rank')}, once as they are and twice out of a store, of which {elsewhere:.0%} is on"
        f" other ranks.{many}"
    )


@at_click(Setting(), asked_words, "Read", "io_measured", "Nothing read yet.", "Some 15 seconds")
def read_them(panel: Panel, setting: Setting, read: Run = run) -> None:
    """Look for which way is the fastest where files are in memory, and why one request at a time is so slow."""
    outcome = read(setting, panel.stop, panel.say)
    found = {words: rates(setting, outcome, way) for way, words in WAYS.items()}
    panel.show(measured_state(found), result_html(setting, outcome))
    panel.say(outcome_words(setting, outcome))


def requests(batch: int) -> int:
    """Return the requests that one of two ranks sends to the other in an epoch, half of the files being there."""
    mine = FILES // 2
    return mine // 2 if batch == 1 else -(-mine // batch)
