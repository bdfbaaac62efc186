"""A machine that fails: a run on MPI ranks of this machine, of which one is killed now and then, until it is done.

undisturbed(setting, stop)    the same run left alone: its time, what a snapshot costs, its weights
survive(setting, mtbf, stop)  killed at random moments (kill -9), continued from its newest snapshot each time

A failure strikes any rank. One that comes before the ranks are there waits for them.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from json import loads
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.folder import Folder
from lib_dlhpc.explore.blocks.runner import Cancelled
from lib_dlhpc.launch.jobs import ENDS, BatchJob
from lib_dlhpc.launch.local import Job, start
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.storage.snapshots.plan import store_of

PAUSE = 0.02  # s between two looks at a run
MOST = 4  # failures, so that a page is not busy for long
BATCH, EPOCHS = 64, 28
Begin = Callable[..., Job | BatchJob]


class Setting(NamedTuple):
    """What the controls say. often: failures in the time of the undisturbed run, on the mean; every: steps."""

    often: float = 2.0
    every: int = 50
    ranks: int = 2
    seed: int = 24


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
    versions: int = 0  # published

    @property
    def failures(self) -> list[float]:
        """When a rank was killed."""
        return [leg.ended for leg in self.legs if leg.killed is not None]

    @property
    def again(self) -> list[int]:
        """Steps that each failure took back."""
        return [max(a.reached - b.first, 0) for a, b in zip(self.legs, self.legs[1:], strict=False)]

    @property
    def training(self) -> float:
        """Seconds in which steps were taken, for the first time or again."""
        return sum(leg.ended - leg.begun for leg in self.legs if leg.begun is not None)


def experiment(setting: Setting) -> Experiment:
    """Return what is trained: some hundred steps of a small network on digits."""
    shared = {"nodes": 1, "devices_per_node": setting.ranks, "batch": BATCH // setting.ranks}
    return read_experiment(
        {
            "model": "cnn-digits",
            "dataset": "digits",
            "machine": "laptop",
            "strategy": shared,
            "run": {"epochs": EPOCHS},
            "training": {"rate": 0.05},
        }
    )


def undisturbed(setting: Setting, stop: threading.Event, begin: Begin = start) -> Alone:
    """Run from start to end. Raises JobError, SpecError, Cancelled."""
    with _folder() as folder:
        zero, leg = time.time(), Leg(0.0)
        job = begin(experiment(setting), setting.ranks, folder, snapshot_every=setting.every)

        def look() -> None:
            leg.begun = leg.begun if leg.begun is not None else _begun(folder, 0, zero)

        _watch(job, stop, look)
        outcome, whole = job.wait(), time.time() - zero
        begun = leg.begun if leg.begun is not None else max(whole - outcome["seconds"], 0.0)
        copying = float(outcome["terms"].get("checkpoint", 0.0)) * setting.every
        newest, weights, _ = _kept(folder)
        about = (copying, newest, weights, outcome["accuracy"])
        return Alone(
            begun, outcome["seconds"], max(whole - begun - outcome["seconds"], 0.0), *about
        )


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
    own, strikes = Survived(), Strikes(setting, mtbf)
    with _folder() as folder:
        zero = time.time()
        while True:
            leg, before = Leg(time.time() - zero, first=_newest(folder)), _inode(folder)
            named = {"resume": bool(own.legs), "snapshot_every": setting.every}
            job = begin(experiment(setting), setting.ranks, folder, **named)
            own.legs.append(leg)

            def look(leg: Leg = leg, before: int = before) -> None:
                if leg.begun is None:
                    leg.begun = _begun(folder, before, zero)
                strikes.fall(folder, leg, zero)

            _watch(job, stop, look)
            if leg.killed is not None and job.state != "done":
                leg.reached = _reached(folder, leg.killed, leg.first)
                there = f"the newest version is of step {_newest(folder)}"
                tell(f"Rank {leg.killed} was killed in step {leg.reached}; {there}.")
                continue
            outcome = job.wait()  # raises why it failed
            own.wall, leg.killed = time.time() - zero, None
            if leg.begun is None:
                leg.begun = max(own.wall - outcome["seconds"], leg.started)
            leg.ended = min(leg.begun + outcome["seconds"], own.wall)
            leg.reached, own.weights, own.versions = _kept(folder)
            return own


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
        if _kill(folder, victim):
            leg.killed, leg.ended = victim, time.time() - zero
            self.next = leg.ended + self.draw.exponential(self.mtbf)
            self.count += 1


def _watch(job: Job | BatchJob, stop: threading.Event, look: Callable[[], None]) -> None:
    """Wait for the end of a run, looking at it. Raises Cancelled."""
    try:
        while job.state not in ENDS:
            if stop.wait(PAUSE):
                raise Cancelled
            look()
    finally:
        job.cancel()  # of what has ended, nothing is left to end


@contextmanager
def _folder() -> Iterator[Path]:
    above = Folder("failures")
    try:
        yield above.path / "run"
    finally:
        above.remove()


def _kill(folder: Path, rank: int) -> bool:
    """Kill a rank; return whether it was there."""
    try:
        process = int(loads((folder / f"rank-{rank}.json").read_text("utf-8"))["process"])
        os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    except (OSError, ValueError, KeyError):
        return False
    return True


def _kept(folder: Path) -> tuple[int, bytes, int]:
    """Return step and weights of the newest version, and how many versions there are."""
    store, plan = store_of(folder)
    newest = store.newest(plan.branch)
    assert newest is not None  # a run that is done has one of its end
    return newest.step, store.load(newest)["weights"].tobytes(), len(store.log())


def _newest(folder: Path) -> int:
    """Return the step of the newest version, 0 if there is none."""
    if not (folder / "snapshots" / "format").exists():
        return 0
    store, plan = store_of(folder)
    newest = store.newest(plan.branch)
    return newest.step if newest else 0


def _reached(folder: Path, rank: int, first: int) -> int:
    """Return the step that a killed rank was in, by what its parent wrote down."""
    with suppress(OSError, ValueError, KeyError):
        return max(int(loads((folder / f"error-{rank}.json").read_text("utf-8"))["step"]), first)
    return first


def _inode(folder: Path) -> int:
    with suppress(OSError):
        return (folder / "metrics.jsonl").stat().st_ino
    return 0


def _begun(folder: Path, before: int, zero: float) -> float | None:
    """Return when the steps of a run began, None if they have not.

    One that goes on writes its metrics anew as it begins; the first tells its seconds with its first loss.
    """
    try:
        about = (folder / "metrics.jsonl").stat()
        if about.st_ino == before:
            return None
        if before:
            return about.st_mtime - zero
        row: dict[str, Any] = loads((folder / "metrics.jsonl").read_text("utf-8").split("\n")[0])
        return float(about.st_mtime - row["seconds"] - zero)
    except (OSError, ValueError, KeyError):
        return None
