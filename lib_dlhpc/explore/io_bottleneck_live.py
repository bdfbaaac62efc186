"""The same loader on a folder of files and on a packed store, on ranks of this machine, beside its prediction.

read_them()    the experiment: what a click reads, what came of it
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import ipywidgets

from lib_dlhpc.calibrate import cold
from lib_dlhpc.calibrate.expected import reading as one_sample
from lib_dlhpc.calibrate.host import cores
from lib_dlhpc.calibrate.io import Setting as Asked
from lib_dlhpc.calibrate.points import COLD, WARM
from lib_dlhpc.explore.charts import chart
from lib_dlhpc.explore.io_bottleneck_charts import measured_state
from lib_dlhpc.explore.io_bottleneck_here import BATCH, FILES
from lib_dlhpc.explore.live_run import ranks_in_words
from lib_dlhpc.explore.panels import problem_html, table_html
from lib_dlhpc.explore.workbench import dropdown, slider, verdict_html, workbench
from lib_dlhpc.launch.mpi import command, environment
from lib_dlhpc.predict.io import reading
from lib_dlhpc.simulate.storage import clients
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import StorageTier
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

MODULE = "lib_dlhpc.explore.io_bottleneck_here"
PAUSE, GRACE, PATIENCE = 0.1, 3.0, 90.0  # s
SIZES = (4 << 10, 16 << 10, 64 << 10)  # B
WAYS = {
    "files": "folder",
    "mounted": "store",
    "many": f"store, {BATCH} at once",
}
PLAYED = 4000  # samples
ERROR = re.compile(
    r"\w+(Error|Lost|File|There|Folder): "
)  # how an exception is printed, among mpiexec's words


class Cancelled(Exception):
    """The learner ended it."""


class ReadError(RuntimeError):
    """Something kept the ranks from reading; the text says what."""


class Setting(NamedTuple):
    """What the controls say. size: B of a file; copies: 0, one on each rank."""

    size: int = 16 << 10
    state: str = WARM
    ranks: int = 2
    copies: int = 1

    @property
    def held(self) -> int:
        """On how many ranks each partition lies."""
        return self.copies or self.ranks


class Came(NamedTuple):
    """What came of it: the tier as fitted, and what the ranks say."""

    tier: dict[str, Any]
    read: dict[str, Any]


Run = Callable[[Setting, threading.Event, Callable[[str], None]], Came]


def run(setting: Setting, stop: threading.Event, tell: Callable[[str], None]) -> Came:
    """Make files, calibrate, read. Raises ReadError, SpecError, Cancelled; nothing is left in any case."""
    folder = Path(tempfile.mkdtemp(prefix="dlhpc-input-"))
    try:
        task = setting._asdict() | {"copies": setting.held}
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        words = command(setting.ranks, "-m", MODULE, str(folder), "read")
        tell(f"Writing {FILES:,} files, packing them, measuring what a file takes ...")
        _through([*words[3:-1]], folder, stop)
        tell(f"{ranks_in_words(setting.ranks)} read them: as files, and out of the store ...")
        _through(words, folder, stop)
        told = (json.loads((folder / f"{n}.json").read_text("utf-8")) for n in ("tier", "read"))
        return Came(*told)
    except OSError as error:
        raise ReadError(f"{folder}: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _through(words: list[str], folder: Path, stop: threading.Event) -> None:
    """Run a program to its end, or until it is cancelled, or too late."""
    with open(folder / "log.txt", "wb") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(),
            start_new_session=os.name == "posix",
        )  # fmt: skip
    waited = 0.0
    while process.poll() is None:
        cancelled = stop.wait(PAUSE)
        waited += PAUSE
        if cancelled or waited > PATIENCE:
            _end(process)
            if cancelled:
                raise Cancelled
            raise ReadError(f"It took more than {PATIENCE:g} s: this machine is busy.")
    if process.returncode:
        lines = (folder / "log.txt").read_text("utf-8", "replace").strip().splitlines()
        errors = [line for line in lines if ERROR.match(line)] or lines or ["no output"]
        raise ReadError(f"It ended with an error: {errors[0]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started."""

    def tell(how: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, how) if os.name == "posix" else process.kill()

    tell(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    tell(getattr(signal, "SIGKILL", signal.SIGTERM))
    process.wait()


def read_them(read: Run = run, thread: Callable[..., Any] = threading.Thread) -> ipywidgets.Box:
    """Return controls, buttons, and what came of a click. thread: in what it is done."""
    states = [("in memory", WARM)]
    if cold.ADVISE in cold.ways():
        states.append(("on the disk", COLD))
    controls = {
        "size": slider("A file", f"Of {FILES:,}", [(f"{b >> 10} KiB", b) for b in SIZES], 16 << 10),
        "state": dropdown("Files are", "Before each epoch", states, WARM),
        "ranks": slider("Ranks", "Each reads its part of an epoch", [(str(n), n) for n in (1, 2, 4)], 2),
        "copies": dropdown("Store", "On how many ranks a file lies",
                           [("one copy in all", 1), ("a copy on each rank", 0)], 1),
    }  # fmt: skip
    go = ipywidgets.Button(description="Read", button_style="primary", tooltip="Some 15 seconds")
    cancel = ipywidgets.Button(description="Cancel", tooltip="Ends all ranks", disabled=True)
    asked, said = ipywidgets.HTML(), ipywidgets.HTML(verdict_html("Nothing read yet."))
    bars, result, below = chart("io_measured"), ipywidgets.HTML(), ipywidgets.VBox([])
    stop = threading.Event()

    def chosen() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def ask() -> None:
        asked.value = verdict_html(asked_words(chosen()))

    def tell(words: str) -> None:
        said.value = verdict_html(words)

    def work(setting: Setting) -> None:
        try:
            came = read(setting, stop, tell)
            bars.update(*measured_state(rows(setting, came)))
            result.value = result_html(setting, came)
            below.children = (bars, result)
            tell(came_words(setting, came))
        except Cancelled:
            tell("Cancelled.")
        except (ReadError, SpecError) as reason:
            said.value = problem_html(str(reason))
        finally:
            go.disabled, cancel.disabled = False, True

    def clicked(_: Any) -> None:
        go.disabled, cancel.disabled = True, False
        stop.clear()
        thread(target=work, args=(chosen(),), daemon=True).start()

    go.on_click(clicked)
    cancel.on_click(lambda _: stop.set())
    note = "which way is the quickest where files are in memory, and why a question at a time is so slow."
    return workbench(controls, [asked, ipywidgets.HBox([go, cancel]), said, below], ask, note)


def asked_words(setting: Setting) -> str:
    """Say what a click would read."""
    elsewhere = 1 - setting.held / setting.ranks
    many = " More ranks than cores: they take turns." if setting.ranks > cores() else ""
    return (
        f"{FILES:,} files of {setting.size >> 10} KiB, {show(FILES * setting.size, 'B')}, by"
        f" {ranks_in_words(setting.ranks)}, once as they are and twice out of a store, of which {elsewhere:.0%} lies on"
        f" other ranks.{many}"
    )


def experiment(setting: Setting, came: Came, way: str) -> Experiment:
    """Return one way of reading as an experiment: the fitted tier, the loader's own work, questions to ranks.

    Its own work is what one rank alone took in memory, beyond what the tier says of that.
    """
    tier = StorageTier(**came.tier["tier"])
    what = "file" if way == "files" else "random"
    own = one_sample(tier, Asked(what, setting.size, setting.ranks))
    alone = reading(one_sample(tier, Asked(what, setting.size, 1))).reader.values()
    # The tier of a disk says nothing of memory.
    known = float(sum(alone)) if setting.state == WARM else 0.0
    changes: dict[str, Any] = {"storage.decode": max(came.read[way] - known, came.read["work"])}
    if way != "files" and setting.held < setting.ranks:
        elsewhere = 1 - setting.held / setting.ranks
        asked = 1.0 if way == "mounted" else 1 / (BATCH * elsewhere)  # questions of a remote sample
        changes |= {
            "machine.nodes": setting.ranks,
            "machine.inter_node.latency": came.read["latency"] * asked,
            "machine.inter_node.bandwidth": came.read["bandwidth"],
            "machine.inter_node.efficiency": 1.0,
            "strategy.nodes": setting.ranks,
            "storage.workers": 1,
            "storage.access": "cooperative",
            "storage.local": "tier",
            "storage.replication": setting.held,
        }
        for rate in ("bandwidth", "read_rate"):  # one disk for all ranks
            if getattr(tier, rate) < float("inf"):
                changes[f"machine.storage.tier.{rate}"] = getattr(tier, rate) / setting.ranks
    return own.set(changes)


def rates(setting: Setting, came: Came, way: str) -> tuple[float, float, float]:
    """Return files/s predicted, simulated and measured."""
    own = experiment(setting, came, way)
    played = clients(own, PLAYED, setting.ranks).rate
    return float(reading(own).rate), played, FILES / came.read["took"][way]


def rows(setting: Setting, came: Came) -> list[tuple[str, str, float]]:
    """Return the bars: each way predicted, simulated, measured."""
    names = ("predicted", "simulated", "measured")
    return [
        (words, name, rate)
        for way, words in WAYS.items()
        for name, rate in zip(names, rates(setting, came, way), strict=True)
    ]


def came_words(setting: Setting, came: Came) -> str:
    """Say which way was the quickest, and whether the samples are the same."""
    took = came.read["took"]
    one, many = took["files"] / took["mounted"], took["files"] / took["many"]
    same = "the same samples in the same order" if came.read["same"] else "NOT the same samples"
    return (
        f"<b>Out of the store the loader came to {_times(one)} on the folder, and asked for {BATCH} at once to"
        f" {_times(many)}.</b> All three saw {same}. On {came.tier['system'] or 'this file system'}, files"
        f" {'in memory' if setting.state == WARM else 'dropped from memory before each epoch, names kept'}."
    )


def _times(factor: float) -> str:
    return f"{factor:.2g} times its rate"


def result_html(setting: Setting, came: Came) -> str:
    """Return files/s and the time of a sample by term, predicted, simulated and measured, and why they part."""
    lines = [["files a second", "predicted", "simulated", "measured", "error"]]
    for way, words in WAYS.items():
        told, played, real = rates(setting, came, way)
        lines.append([words, *map(format_plain, (told, played, real)), f"{told / real - 1:+.0%}"])
    terms = {way: dict(reading(experiment(setting, came, way)).reader) for way in WAYS}
    parts = [["time of a reader for a sample", *WAYS.values()]]
    for name in ("metadata", "read latency", "transfer", "remote reads", "decoding"):
        own = "loader and store" if name == "decoding" else name
        parts.append([own, *(show(float(terms[way][name]), "s") for way in WAYS)])
    whole = {way: setting.ranks * came.read["took"][way] / FILES for way in WAYS}
    left = {way: whole[way] - sum(map(float, terms[way].values())) for way in WAYS}
    parts.append(
        ["not foretold", *(("-" if left[w] < 0 else "") + show(abs(left[w]), "s") for w in WAYS)]
    )
    parts.append(["measured", *(show(whole[way], "s") for way in WAYS)])
    ready = came.read["ready"]
    parts.append(["once, to open and find all", *(show(ready[way], "s") for way in WAYS)])
    return (
        table_html(lines)
        + table_html(parts)
        + verdict_html(
            "<b>Why they part.</b> Metadata, latency and transfer are from files read just before, by readers that do"
            " nothing else; the loader's and the store's own work is what one rank alone took beyond that; a question"
            " to another rank takes what it took while that rank had nothing to do. In the run ranks answer each other"
            " while they read, share the cores with all else here, and the slowest of them counts: what that costs is"
            " not foretold. It is why one question for each sample is slow on a busy machine, and why asking for many"
            " at once helps most where it waits longest. From the disk the store has its partitions read front to"
            " back, beside the first samples; what that saves is not foretold either. FanStore's opponent is not the"
            " memory of one computer but a file system that hundreds of nodes ask."
        )
    )


def questions(batch: int) -> int:
    """Return how many questions one of two ranks has for the other in an epoch, half of the files lying there."""
    mine = FILES // 2
    return mine // 2 if batch == 1 else -(-mine // batch)
