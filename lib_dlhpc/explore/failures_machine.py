"""A machine that fails: a run on MPI ranks of this machine, of which one is killed now and then, until it is done.

undisturbed(setting, stop)    the same run left alone: its time, what a snapshot costs, its weights
survive(setting, stop)        killed at random moments (kill -9), gone on with from its newest snapshot each time

A failure strikes any rank. One that comes before the ranks are there waits for them.
"""

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from json import loads
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.launch.local import Job, start
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.storage.snapshots.plan import store_of

PAUSE = 0.02  # s between two looks at a run
MOST = 4  # failures, so that a page is not busy for long
BATCH, EPOCHS = 64, 14
Begin = Callable[..., Job]


class Cancelled(Exception):
    """The learner ended it."""


class Setting(NamedTuple):
    """What the controls say. mtbf: mean s between failures; every: steps between snapshots."""

    mtbf: float = 2.0
    every: int = 50
    ranks: int = 2
    seed: int = 0


class Alone(NamedTuple):
    """A run that nobody disturbed; s, and its weights as bytes."""

    startup: float  # until it trains
    seconds: float  # of training
    ending: float  # from the end of training until the ranks are gone
    copying: float  # that training stands still for a snapshot
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
    """A run that came through."""

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
            "model": "cnn-digits", "dataset": "digits", "machine": "laptop", "strategy": shared,
            "run": {"epochs": EPOCHS}, "training": {"rate": 0.05},
        }
    )  # fmt: skip


def undisturbed(setting: Setting, stop: threading.Event, begin: Begin = start) -> Alone:
    """Run from start to end. Raises JobError, SpecError, Cancelled."""
    with _folder() as folder:
        zero = time.time()
        job = begin(experiment(setting), setting.ranks, folder, snapshot_every=setting.every)
        _watch(job, stop, lambda: None)
        told, over = job.wait(), time.time()
        trained = (
            (folder / "metrics.jsonl").stat().st_mtime
        )  # the last that is told before ranks end
        store, plan = store_of(folder)
        newest = store.newest(plan.branch)
        assert newest is not None
        weights = store.load(newest)["weights"].tobytes()
        begun = max(trained - told["seconds"], zero)
        copying = float(told["terms"].get("checkpoint", 0.0)) * setting.every
        about = (copying, newest.step, weights, told["accuracy"])
        return Alone(begun - zero, told["seconds"], over - trained, *about)


def survive(
    setting: Setting,
    stop: threading.Event,
    tell: Callable[[str], None] = print,
    begin: Begin = start,
) -> Survived:
    """Run until it is done, however often a rank is killed. tell: what happens, in words.

    Raises JobError if it fails of itself, SpecError, Cancelled.
    """
    draw = np.random.default_rng(setting.seed)
    own = Survived()
    with _folder() as folder:
        zero, strike = time.time(), float("inf")
        while True:
            resume = bool(own.legs)
            before = _inode(folder)
            leg = Leg(time.time() - zero, first=_newest(folder))
            job = begin(
                experiment(setting), setting.ranks, folder, resume, snapshot_every=setting.every
            )
            own.legs.append(leg)

            def look(leg: Leg = leg, job: Job = job, before: int = before) -> None:
                nonlocal strike
                now = time.time() - zero
                if leg.begun is None:
                    leg.begun = _begun(folder, before, zero)
                    if leg.begun is not None and strike == float(
                        "inf"
                    ):  # the first start is spared
                        strike = leg.begun + draw.exponential(setting.mtbf)
                if now >= strike and leg.killed is None and len(own.failures) < MOST:
                    victim = int(draw.integers(setting.ranks))
                    if _kill(folder, victim):
                        leg.killed, leg.ended = victim, time.time() - zero
                        strike = leg.ended + draw.exponential(setting.mtbf)

            _watch(job, stop, look)
            if leg.killed is not None and job.state != "done":
                leg.reached = _reached(folder, leg.killed, leg.first)
                there = f"the newest version is of step {_newest(folder)}"
                tell(f"Rank {leg.killed} was killed in step {leg.reached}; {there}.")
                continue
            told = job.wait()  # raises what it failed of
            own.wall, leg.killed = time.time() - zero, None
            leg.ended = (folder / "metrics.jsonl").stat().st_mtime - zero
            leg.begun = leg.begun if leg.begun is not None else leg.ended - told["seconds"]
            store, plan = store_of(folder)
            newest = store.newest(plan.branch)
            assert newest is not None
            leg.reached, own.versions = newest.step, len(store.log())
            own.weights = store.load(newest)["weights"].tobytes()
            return own


def _watch(job: Job, stop: threading.Event, look: Callable[[], None]) -> None:
    """Wait for the end of a run, looking at it. Raises Cancelled."""
    try:
        while job.state == "running":
            if stop.wait(PAUSE):
                raise Cancelled
            look()
    finally:
        job.cancel()  # of what has ended, nothing is left to end


@contextmanager
def _folder() -> Iterator[Path]:
    above = Path(tempfile.mkdtemp(prefix="dlhpc-failures-"))
    try:
        yield above / "run"
    finally:
        shutil.rmtree(above, ignore_errors=True)


def _kill(folder: Path, rank: int) -> bool:
    """Kill a rank; return whether it was there."""
    try:
        process = int(loads((folder / f"rank-{rank}.json").read_text("utf-8"))["process"])
        os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    except (OSError, ValueError, KeyError):
        return False
    return True


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
