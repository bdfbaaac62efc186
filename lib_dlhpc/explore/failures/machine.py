"""A machine that fails: a run on MPI ranks of this machine, of which one is killed now and then, until it is done.

A failure strikes any rank. One that comes before the ranks are there waits for them.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from json import loads
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Slider
from lib_dlhpc.explore.blocks.folder import Folder
from lib_dlhpc.explore.blocks.runner import Cancelled
from lib_dlhpc.launch.jobs import ENDS, BatchJob
from lib_dlhpc.launch.local import Job, start
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.storage.snapshots.plan import store_of

PAUSE = 0.02  # s between two looks at a run
MOST = 4  # failures, so that a page is not busy for long
BATCH, EPOCHS = 64, 28
OFTEN = "On average, in the time of the undisturbed run"
SEEDS = {"1": 24, "2": 6, "3": 8, "4": 18, "5": 7}  # whose first failures come soon
Begin = Callable[..., Job | BatchJob]


class Setting(NamedTuple):
    """A run that fails. often: failures in the time of the undisturbed run, on the mean; every: steps."""

    often: Annotated[float, Slider("Failures", OFTEN, (0.5, 1.0, 2.0, 4.0), "{:g}".format)] = 2.0
    every: Annotated[
        int, Slider("Snapshot", "Steps from one to the next", (10, 50, 100, 200), "{} steps".format)
    ] = 50
    ranks: Annotated[int, Slider("Ranks", "Each batch is split over them", (1, 2))] = 2
    seed: Annotated[int, Slider("Seed", "Other moments, other ranks", SEEDS)] = SEEDS["1"]


class Alone(NamedTuple):
    """A run that nobody disturbed; s, and its weights as bytes."""

    startup: float  # until it trains
    seconds: float  # of training
    ending: float  # from the end of training until the ranks are gone
    copying: float  # that a snapshot stalls training
    steps: int
    weights: bytes
    accuracy: float


@dataclass
class Leg:
    """What went on between two failures; s since the start of all."""

    started: float
    begun: float | None = None  # when it trained
    ended: float = 0.0
    first: int = 0  # step that it began at
    reached: int = 0  # step at which it was killed, or the last
    killed: int | None = None  # which rank


@dataclass
class Survived:
    """A run that completed."""

    legs: list[Leg] = field(default_factory=list)
    wall: float = 0.0  # s from the first start until the ranks were gone
    weights: bytes = b""
    outcome: dict[str, Any] = field(default_factory=dict)  # what its last ranks returned

    @property
    def failures(self) -> list[float]:
        """When a rank was killed."""
        return [leg.ended for leg in self.legs if leg.killed is not None]

    @property
    def again(self) -> list[int]:
        """Steps that each failure took back."""
        return [max(a.reached - b.first, 0) for a, b in pairwise(self.legs)]

    @property
    def startup(self) -> float:
        """Seconds until it trained, or was killed before."""
        first = self.legs[0]
        return first.ended if first.begun is None else first.begun

    @property
    def training(self) -> float:
        """Seconds in which steps were taken, for the first time or again."""
        return sum(leg.ended - leg.begun for leg in self.legs if leg.begun is not None)

    @property
    def pace(self) -> float:
        """Seconds of a step."""
        return self.training / max(sum(leg.reached - leg.first for leg in self.legs), 1)


def experiment(setting: Setting) -> Experiment:
    """Return what is trained: some hundred steps of a small network on digits."""
    shared = {"nodes": 1, "devices_per_node": setting.ranks, "batch": BATCH // setting.ranks}
    about = {"model": "cnn-digits", "dataset": "digits", "machine": "laptop", "strategy": shared}
    return read_experiment({**about, "run": {"epochs": EPOCHS}, "training": {"rate": 0.05}})


def undisturbed(setting: Setting, stop: threading.Event, begin: Begin = start) -> Alone:
    """Run from start to end. Raises JobError, SpecError, Cancelled."""
    own = survive(setting, math.inf, stop, begin=begin)
    (leg,), seconds = own.legs, own.training
    copying = float(own.outcome["terms"].get("checkpoint", 0.0)) * setting.every
    about = (copying, leg.reached, own.weights, own.outcome["accuracy"])
    return Alone(own.startup, seconds, own.wall - leg.ended, *about)


def survive(
    setting: Setting,
    mtbf: float,
    stop: threading.Event,
    tell: Callable[[str], None] = print,
    begin: Begin = start,
) -> Survived:
    """Run until it is done, however often a rank is killed. mtbf: mean s between two. tell: what happens, in words.

    Raises JobError if it fails of itself, SpecError, Cancelled.
    """
    own, strikes, above = Survived(), Strikes(setting, mtbf), Folder("failures")
    folder, zero = above.path / "run", time.time()
    try:
        while True:
            leg, before = Leg(time.time() - zero, first=_newest(folder)[0]), _inode(folder)
            named = {"resume": bool(own.legs), "snapshot_every": setting.every}
            job = begin(experiment(setting), setting.ranks, folder, **named)
            own.legs.append(leg)
            try:
                while job.state not in ENDS:
                    if stop.wait(PAUSE):
                        raise Cancelled
                    if leg.begun is None:
                        leg.begun = _begun(folder, before, zero)
                    strikes.fall(folder, leg, zero)
            finally:
                job.cancel()  # of what has ended, nothing is left to end
            if leg.killed is None or job.state == "done":
                break
            step = _recorded(folder / f"error-{leg.killed}.json", "step")  # by its parent
            leg.reached = max(step or 0, leg.first)
            there = f"the newest version is of step {_newest(folder)[0]}"
            tell(f"Rank {leg.killed} was killed in step {leg.reached}; {there}.")
        own.outcome = job.wait()  # raises why it failed
        own.wall, leg.killed = time.time() - zero, None
        if leg.begun is None:
            leg.begun = max(own.wall - own.outcome["seconds"], leg.started)
        leg.ended = min(leg.begun + own.outcome["seconds"], own.wall)
        leg.reached, own.weights = _newest(folder)
        return own
    finally:
        above.remove()


class Strikes:
    """When the next failure comes, counted from when the first step began: the first start is spared."""

    def __init__(self, setting: Setting, mtbf: float) -> None:
        self.ranks, self.mtbf, self.draw = setting.ranks, mtbf, np.random.default_rng(setting.seed)
        self.next, self.count = math.inf, 0  # s since the start of all

    def fall(self, folder: Path, leg: Leg, zero: float) -> None:
        """Kill a rank if it is time; take down in the leg which one, and when."""
        if self.next == math.inf and leg.begun is not None:
            self.next = leg.begun + self.draw.exponential(self.mtbf)
        if time.time() - zero < self.next or leg.killed is not None or self.count == MOST:
            return
        victim = int(self.draw.integers(self.ranks))
        process = _recorded(folder / f"rank-{victim}.json", "process")
        if process is None:
            return
        with suppress(OSError):
            os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))
            leg.killed, leg.ended = victim, time.time() - zero
            self.next = leg.ended + self.draw.exponential(self.mtbf)
            self.count += 1


def _newest(folder: Path) -> tuple[int, bytes]:
    """Return step and weights of the newest version; 0 and nothing if there is none."""
    if not (folder / "snapshots" / "format").exists():
        return 0, b""
    store, plan = store_of(folder)
    newest = store.newest(plan.branch)
    return (newest.step, store.load(newest)["weights"].tobytes()) if newest else (0, b"")


def _recorded(file: Path, name: str) -> int | None:
    """Return a number of a JSON file, None if there is none."""
    with suppress(OSError, ValueError, KeyError):
        return int(loads(file.read_text("utf-8"))[name])
    return None


def _inode(folder: Path) -> int:
    with suppress(OSError):
        return (folder / "metrics.jsonl").stat().st_ino
    return 0


def _begun(folder: Path, before: int, zero: float) -> float | None:
    """Return when the steps of a run began, None if they have not.

    One that goes on writes its metrics anew as it begins; the first tells its seconds with its first loss.
    """
    with suppress(OSError, ValueError, KeyError):
        about = (folder / "metrics.jsonl").stat()
        if about.st_ino == before:
            return None
        if before:
            return about.st_mtime - zero
        row = loads((folder / "metrics.jsonl").read_text("utf-8").split("\n")[0])
        return float(about.st_mtime - row["seconds"] - zero)
    return None
