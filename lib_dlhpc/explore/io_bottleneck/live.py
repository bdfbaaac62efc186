"""The same loader on a folder of files and on a packed store, on ranks of this machine, beside its prediction.

read_them()    the experiment: what a click reads, and the outcome
"""

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import ipywidgets

from lib_dlhpc.calibration import cold
from lib_dlhpc.calibration.points import COLD, WARM
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.live_run import ranks_in_words
from lib_dlhpc.explore.blocks.runner import Cancelled, Runner, Thread
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, workbench
from lib_dlhpc.explore.io_bottleneck.charts import measured_state
from lib_dlhpc.explore.io_bottleneck.here import FILES
from lib_dlhpc.explore.io_bottleneck.words import Read, Setting, outcome_words, result_html, rows
from lib_dlhpc.launch.mpi import command, environment
from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.units import format_quantity as show

MODULE = "lib_dlhpc.explore.io_bottleneck.here"
PAUSE, GRACE, PATIENCE = 0.1, 3.0, 180.0  # s
SIZES = (4 << 10, 16 << 10, 64 << 10)  # B
# How an exception is printed, among mpiexec's own words.
ERROR = re.compile(r"\w+(Error|Lost|File|There|Folder): ")


class ReadError(RuntimeError):
    """The ranks could not read; the text says why."""


Run = Callable[[Setting, threading.Event, Callable[[str], None]], Read]


def run(setting: Setting, stop: threading.Event, tell: Callable[[str], None]) -> Read:
    """Make files, calibrate, read. Raises ReadError, SpecError, Cancelled; nothing is left in any case."""
    folder = owned.make_folder("dlhpc-input-")
    try:
        task = setting._asdict() | {"copies": setting.held}
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        words = command(setting.ranks, "-m", MODULE, str(folder), "read")
        tell(f"Writing {FILES:,} files, packing them, measuring what a file takes ...")
        _through([*words[3:-1]], folder, stop)
        tell(f"{ranks_in_words(setting.ranks)} read them: as files, and out of the store ...")
        _through(words, folder, stop)
        reports = (json.loads((folder / f"{n}.json").read_text("utf-8")) for n in ("tier", "read"))
        return Read(*reports)
    except OSError as error:
        raise ReadError(f"{folder}: {error.strerror or error}.") from None
    finally:
        owned.remove_folder(folder)


def _through(words: list[str], folder: Path, stop: threading.Event) -> None:
    """Run a program to its end, or until it is cancelled, or too late."""
    with open(folder / "log.txt", "wb") as log:
        process = owned.start(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(),
            start_new_session=os.name == "posix",
        )
    waited = 0.0
    while process.poll() is None:
        cancelled = stop.wait(PAUSE)
        waited += PAUSE
        if cancelled or waited > PATIENCE:
            owned.end(process)
            if cancelled:
                raise Cancelled
            raise ReadError(f"It took more than {PATIENCE:g} s: this machine is busy.")
    if process.returncode:
        files = [*sorted(folder.glob("error-*.txt")), folder / "log.txt"]
        lines = [line for file in files for line in file.read_text("utf-8", "replace").splitlines()]
        errors = [line for line in lines if ERROR.match(line)] or [
            *filter(str.strip, lines),
            "no output",
        ]
        raise ReadError(f"It ended with an error: {errors[0]}")


def read_them(read: Run = run, thread: Thread = threading.Thread) -> ipywidgets.Box:
    """Return controls, buttons, and what a click yields."""
    states = [("in memory", WARM)]
    if cold.ADVISE in cold.ways():
        states.append(("on the disk", COLD))
    controls = {
        "size": slider("A file", f"Of {FILES:,}", [(f"{b >> 10} KiB", b) for b in SIZES], 16 << 10),
        "state": dropdown("Files are", "Before each epoch", states, WARM),
        "ranks": slider(
            "Ranks", "Each reads its part of an epoch", [(str(n), n) for n in (1, 2, 4)], 2
        ),
        "copies": dropdown(
            "Store", "Copies of each file", [("one copy in all", 1), ("a copy on each rank", 0)], 1
        ),
    }
    asked = ipywidgets.HTML()
    bars, result, below = chart("io_measured"), ipywidgets.HTML(), ipywidgets.VBox([])

    def chosen() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def ask() -> None:
        asked.value = verdict_html(asked_words(chosen()))

    def work(runner: Runner) -> None:
        setting = chosen()
        outcome = read(setting, runner.stop, runner.say)
        bars.update(*measured_state(rows(setting, outcome)))
        result.value = result_html(setting, outcome)
        below.children = (bars, result)
        runner.say(outcome_words(setting, outcome))

    runner = Runner("Read", work, "Nothing read yet.", "Some 15 seconds", thread)
    note = "which way is the fastest where files are in memory, and why one request at a time is so slow."
    return workbench(controls, [asked, *runner.widget.children, below], ask, note)


def asked_words(setting: Setting) -> str:
    """Say what a click would read."""
    elsewhere = 1 - setting.held / setting.ranks
    many = " More ranks than cores: they share them." if setting.ranks > cores() else ""
    return (
        f"{FILES:,} files of {setting.size >> 10} KiB, {show(FILES * setting.size, 'B')}, by"
        f" {ranks_in_words(setting.ranks)}, once as they are and twice out of a store, of which {elsewhere:.0%} is on"
        f" other ranks.{many}"
    )


def requests(batch: int) -> int:
    """Return the requests that one of two ranks sends to the other in an epoch, half of the files being there."""
    mine = FILES // 2
    return mine // 2 if batch == 1 else -(-mine // batch)
