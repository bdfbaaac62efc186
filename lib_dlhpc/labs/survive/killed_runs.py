"""A small training run that is killed (kill -9) at chosen points and restarted with a learner's save and resume.

    result = run_with_kills(Path("step.py"), task)    the report of every process of the run

The run is killed between two steps, right after a save, before each call of a save that opens, writes, renames or
flushes a file, and right after those that leave a file short, so results do not depend on timing.
`python -m lib_dlhpc.labs.survive.killed_runs` is the driver; each attempt is a fork of it.
"""

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.lifetime import owned
from lib_dlhpc.storage.snapshots import SnapshotStore

SAMPLES, INPUTS, OUTPUTS, BATCH = 256, 24, 6, 16
RATE, MOMENTUM = 0.1, 0.9
MOMENTS = 20  # kill points within a save, at most
PATIENCE = 180.0  # s, timeout of the whole experiment
LONGEST = 20  # s, timeout of one process
AFTER = -1  # a kill point: right after the save (or the step)
# Calls of C that change files; nothing between two of them changes a file.
CALLS = {
    "open",
    "write",
    "writelines",
    "tofile",
    "flush",
    "close",
    "fsync",
    "fdatasync",
    "replace",
    "rename",
    "link",
    "symlink",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "truncate",
    "ftruncate",
    "pwrite",
    "sendfile",
    "_fcopyfile",
    "connect",
    "execute",
    "commit",
}
# What is written next may be written by C alone, as by pickle.dump: no call of CALLS comes between.
SHORT = {"open", "truncate", "ftruncate"}


class RestartTask(NamedTuple):
    """How long the run is, how often it saves, and when it is killed, all in steps."""

    seed: int
    steps: int
    interval: int
    saves: tuple[int, ...]  # killed at each kill point of the save after these steps
    kills: tuple[int, ...]  # killed right after these steps, and after their save; ascending
    moments: int = MOMENTS  # kill points of each of `saves`, at most
    longest: int = LONGEST


@dataclass
class Attempt:
    """The report of one process of the run. State: [weights, velocity, order of samples], as short hashes."""

    began: int | None = None  # step after resume
    state: list[str] = field(default_factory=list)
    trained: int = 0  # steps trained within resume: recomputed steps
    reached: int = 0  # the last step
    saved: list[int] = field(default_factory=list)  # steps after which a save completed
    calls: list[int] = field(default_factory=list)  # kill points of each save
    killed: str = ""  # where it was killed
    ended: list[str] = field(default_factory=list)  # state at the end
    error: str = ""  # the error, and where
    broken: str = ""  # damage in the SnapshotStores that it left


@dataclass
class RestartResult:
    """All processes. reference: the state after each step of a run without saves and kills."""

    reference: list[list[str]]
    alone: list[Attempt]  # with saves, never killed; then restarted after it completed
    trials: dict[int, list[list[Attempt]]]  # of each of task.saves: killed in it, and the restart
    journey: list[Attempt]  # killed at task.kills, until it completes


class Training:
    """The state of training. weights, velocity: arrays; rng: draws the next samples; step: completed steps."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        self._x = rng.standard_normal((SAMPLES, INPUTS))
        self._y = np.eye(OUTPUTS)[rng.integers(0, OUTPUTS, SAMPLES)]
        self.weights = 0.1 * rng.standard_normal((INPUTS, OUTPUTS))
        self.velocity = np.zeros_like(self.weights)
        self.rng = np.random.default_rng([seed, 2])
        self.step = 0

    def one_step(self) -> None:
        """Take a step of SGD with momentum on samples that rng draws."""
        rows = self.rng.integers(0, SAMPLES, BATCH)
        scores = np.exp(self._x[rows] @ self.weights)
        error = scores / scores.sum(axis=1, keepdims=True) - self._y[rows]
        self.velocity = MOMENTUM * self.velocity - RATE / BATCH * (self._x[rows].T @ error)
        self.weights = self.weights + self.velocity
        self.step += 1


def available() -> bool:
    """Return whether this system can fork and kill a process."""
    return hasattr(os, "fork") and hasattr(signal, "SIGKILL")


def run_with_kills(file: Path, own: RestartTask, folder: Path | None = None) -> RestartResult:
    """Run, kill and restart with the `save` and `resume` that a file defines. folder: where it saves.

    Raises LabError if the file cannot be run or the runs time out.
    """
    if not available():
        raise LabError("This system cannot fork a process; Linux, macOS and WSL can.")
    with owned.temporary_folder("dlhpc-restarts-", folder) as place:
        words = [
            sys.executable,
            "-m",
            __name__,
            str(Path(file).resolve()),
            str(place),
            json.dumps(own),
        ]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        try:
            run = owned.run(
                words,
                PATIENCE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | threads,
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"The runs and restarts did not end in {PATIENCE:g} s.") from None
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise LabError((run.stderr.strip() or f"status {run.returncode}").splitlines()[-1])
    table = json.loads(lines[-1])
    trials = {
        int(at): [[Attempt(**attempt) for attempt in attempts] for attempts in each]
        for at, each in table["trials"].items()
    }
    alone, journey = (
        [Attempt(**attempt) for attempt in table[name]] for name in ("alone", "journey")
    )
    return RestartResult(table["reference"], alone, trials, journey)


def main() -> None:
    """Run, kill and restart; print the reports."""
    file, place = sys.argv[1], Path(sys.argv[2])
    own = RestartTask(*json.loads(sys.argv[3]))
    given = runpy.run_path(file)
    for name in ("save", "resume"):
        if not callable(given.get(name)):
            sys.exit(f"{Path(file).name} does not define {name}.")
    result = result_of(Attempts(own, given["save"], given["resume"]), place)
    print(json.dumps(asdict(result)), flush=True)


def result_of(do: "Attempts", place: Path) -> RestartResult:
    """Return the reports of all processes of a run. place: an empty folder."""
    training, reference = Training(do.own.seed), []
    for _ in range(do.own.steps + 1):
        reference.append(state_of(training))
        training.one_step()
    result = RestartResult(reference, [do.run(_new(place / "alone"))], {}, [])
    if not result.alone[0].error:
        result.alone.append(do.run(place / "alone"))
        calls = result.alone[0].calls
        result.trials = {at: list(do.trials(place, at, calls)) for at in do.own.saves}
        result.journey = list(do.journey(_new(place / "journey")))
    return result


class Attempts:
    """Runs one process of the run after the other."""

    def __init__(
        self, own: RestartTask, save: Callable[..., Any], resume: Callable[..., Any]
    ) -> None:
        self.own, self.save, self.resume = own, save, resume

    def trials(self, place: Path, at: int, calls: list[int]) -> Iterator[list[Attempt]]:
        """Yield two reports for each kill point of the save after step `at`: killed there, and restarted."""
        base, trial, number = place / f"base-{at}", place / "trial", at // self.own.interval - 1
        _new(base)
        if number:
            self.run(base, (number * self.own.interval, AFTER))
        many = calls[number] if number < len(calls) else 0
        moments = sorted(
            {*np.linspace(1, many, min(many, self.own.moments)).round().astype(int).tolist()}
        )
        for moment in moments:
            shutil.rmtree(trial, ignore_errors=True)
            shutil.copytree(base, trial, symlinks=True)
            first = self.run(trial, (at, moment))
            first.broken = next(
                (problem for store in _stores(trial) for problem in store.verify()), ""
            )
            yield [first, self.run(trial, (at + self.own.interval, AFTER))]

    def journey(self, folder: Path) -> Iterator[Attempt]:
        """Yield reports until the run completes, or fails."""
        for at in self.own.kills:
            attempt = self.run(folder, (at, AFTER))
            yield attempt
            if attempt.error:
                return
        yield self.run(folder)

    def run(self, folder: Path, kill: tuple[int, int] | None = None) -> Attempt:
        """Run until completion, or until killed: after a step, at this kill point of its save."""
        receiver, sender = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.close(receiver)
            self._train(folder, kill, sender)
        os.close(sender)
        with os.fdopen(receiver, "r", encoding="utf-8") as reports:
            lines = [json.loads(line) for line in reports if line.endswith("\n")]
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        attempt = Attempt()
        for name, value in lines:
            if name in ("saved", "calls"):
                getattr(attempt, name).append(value)
            elif name == "trained":
                attempt.trained += attempt.began is None
            else:
                setattr(attempt, name, value)
        if status == -signal.SIGALRM:
            attempt.error = (
                f"after step {attempt.reached} it did not continue for {self.own.longest} s"
            )
        elif status and not attempt.error and not attempt.killed:
            attempt.error = f"after step {attempt.reached} the process ended with status {status}"
        return attempt

    def _train(self, folder: Path, kill: tuple[int, int] | None, sender: int) -> None:
        """Train in the child process; never return."""

        def report(name: str, value: Any) -> None:
            os.write(sender, json.dumps([name, value]).encode() + b"\n")

        where = "resume"
        try:
            signal.alarm(self.own.longest)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            take = Training.one_step

            def one_step(self: Training) -> None:
                take(self)
                report("trained", self.step)

            Training.one_step = one_step  # type: ignore[method-assign]
            training = Training(self.own.seed)
            self.resume(folder, training)
            report("state", state_of(training))
            report("began", int(training.step))
            while training.step < self.own.steps:
                where = f"step {training.step + 1}"
                training.one_step()
                report("reached", training.step)
                mine = kill is not None and kill[0] == training.step
                if training.step % self.own.interval == 0:
                    where, before = f"save after step {training.step}", training.step
                    with counting(kill[1] if kill and mine else AFTER, report, where) as points:
                        self.save(folder, training)
                    report("calls", points[0])
                    report("saved", before)
                if mine:
                    report("killed", f"after step {training.step}")
                    os.kill(os.getpid(), signal.SIGKILL)
            where = "end"
            report("ended", state_of(training))
        except BaseException as error:
            with suppress(OSError):
                report("error", f"{where} stopped with {type(error).__name__}: {error}")
            os._exit(1)
        os._exit(0)


@contextmanager
def counting(moment: int, report: Callable[[str, Any], None], where: str) -> Iterator[list[int]]:
    """Count the kill points: before calls that change files, after those in SHORT; kill at number `moment`, from 1."""
    calls, points = 0, [0]

    def look(frame: Any, event: str, called: Any) -> None:
        nonlocal calls
        name = getattr(called, "__name__", "")
        if event == "c_call" and name in CALLS:
            calls, when = calls + 1, "before"
        elif event == "c_return" and name in SHORT:
            when = "right after"
        else:
            return
        points[0] += 1
        if points[0] == moment:
            report("killed", f"in the {where}, {when} its file call {calls} ({name})")
            os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(look)  # threads that a save starts and joins
    sys.setprofile(look)
    try:
        yield points
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def state_of(training: Training) -> list[str]:
    """Return hashes of weights, velocity, and of the sampling RNG."""
    order = json.dumps(training.rng.bit_generator.state, sort_keys=True, default=str).encode()
    arrays = (training.weights, training.velocity)
    return [*(_hash(f"{a.dtype} {a.shape}".encode() + a.tobytes()) for a in arrays), _hash(order)]


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def _stores(folder: Path) -> Iterator[SnapshotStore]:
    """Yield the stores below a folder."""
    for path in folder.rglob("format"):
        if path.is_file() and path.read_bytes().startswith(b"dlhpc snapshots"):
            yield SnapshotStore(path.parent)


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
