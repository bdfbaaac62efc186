"""A small training run that is killed (kill -9) at chosen moments, and begins again with a learner's save and resume.

    told = lived(Path("step.py"), task)      every life that it had, in what it said of itself

The run is killed between two steps, right after a save, and before each call of a save that opens, writes,
renames or flushes a file, so that nothing depends on who is quicker. `python -m lib_dlhpc.training.lab.lives` is
the process; each life is a fork of it.
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

from lib_dlhpc.lifetime import owned
from lib_dlhpc.storage.snapshots import SnapshotStore
from lib_dlhpc.training.lab.mistakes import LabError

SAMPLES, INPUTS, OUTPUTS, BATCH = 256, 24, 6, 16
RATE, MOMENTUM = 0.1, 0.9
MOMENTS = 20  # of a save in which the run is killed, at the most
PATIENCE = 180.0  # s until all lives are given up
LONGEST = 20  # s of one life
AFTER = -1  # a moment: right after the save (or the step) is over
# Calls of C that change files; what lies between two of them changes none.
CALLS = {"open", "write", "writelines", "tofile", "flush", "close", "fsync", "fdatasync", "replace", "rename", "link",
         "symlink", "unlink", "remove", "mkdir", "rmdir", "truncate", "ftruncate", "pwrite", "sendfile",
         "_fcopyfile", "connect", "execute", "commit"}  # fmt: skip


class LivesTask(NamedTuple):
    """How long the run is, how often it saves, and when it is killed, all in steps."""

    seed: int
    steps: int
    interval: int
    saves: tuple[int, ...]  # killed in each moment of the save after these steps
    kills: tuple[
        int, ...
    ]  # killed as soon as these steps are over and, where it saves, saved; ascending
    moments: int = MOMENTS  # of each of `saves`, at the most
    longest: int = LONGEST


@dataclass
class Life:
    """What a life said of itself. State: [weights, velocity, order of samples], as short hashes."""

    began: int | None = None  # step that it had when resume was done
    state: list[str] = field(default_factory=list)
    trained: int = 0  # steps before resume was done: they are done again as well
    reached: int = 0  # the last step
    saved: list[int] = field(default_factory=list)  # steps after which a save was over
    calls: list[int] = field(default_factory=list)  # that each save made
    killed: str = ""  # where
    ended: list[str] = field(default_factory=list)  # state at the end
    error: str = ""  # what went wrong, and where
    broken: str = ""  # what is not whole in the SnapshotStores that it left


@dataclass
class Told:
    """All lives. reference: the state after each step of a run that nobody disturbs and that saves nothing."""

    reference: list[list[str]]
    alone: list[Life]  # with saves, undisturbed; then begun once more when it was done
    trials: dict[int, list[list[Life]]]  # of each of task.saves: killed in it, and the next life
    journey: list[Life]  # killed at task.kills, until it is done


class Training:
    """What is trained. weights, velocity: arrays; rng draws the samples of the next step; step: how many are done."""

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
    """Return whether this system can fork a process and kill it."""
    return hasattr(os, "fork") and hasattr(signal, "SIGKILL")


def lived(file: Path, own: LivesTask, folder: Path | None = None) -> Told:
    """Let a run live with the `save` and `resume` that a file defines. folder: where it saves.

    Raises LabError where the file cannot be run or lives do not end.
    """
    if not available():
        raise LabError("This system cannot fork a process; Linux, macOS and WSL can.")
    with owned.temporary_folder("dlhpc-lives-", folder) as place:
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
            run = owned.run(words, PATIENCE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=os.environ | threads)  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LabError(f"The lives of the run did not end in {PATIENCE:g} s.") from None
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise LabError((run.stderr.strip() or f"status {run.returncode}").splitlines()[-1])
    table = json.loads(lines[-1])
    trials = {
        int(at): [[Life(**life) for life in lives] for lives in each]
        for at, each in table["trials"].items()
    }
    alone, journey = ([Life(**life) for life in table[name]] for name in ("alone", "journey"))
    return Told(table["reference"], alone, trials, journey)


def main() -> None:
    """Live, die and live again; tell all of it."""
    file, place = sys.argv[1], Path(sys.argv[2])
    own = LivesTask(*json.loads(sys.argv[3]))
    given = runpy.run_path(file)
    for name in ("save", "resume"):
        if not callable(given.get(name)):
            sys.exit(f"{Path(file).name} does not define {name}.")
    do = Lives(own, given["save"], given["resume"])
    training, reference = Training(own.seed), []
    for _ in range(own.steps + 1):
        reference.append(state_of(training))
        training.one_step()
    told = Told(reference, [do.live(_new(place / "alone"))], {}, [])
    if not told.alone[0].error:
        told.alone.append(do.live(place / "alone"))
        told.trials = {at: list(do.trials(place, at, told.alone[0].calls)) for at in own.saves}
        told.journey = list(do.journey(_new(place / "journey")))
    print(json.dumps(asdict(told)), flush=True)


class Lives:
    """One life after the other, each a process of its own."""

    def __init__(
        self, own: LivesTask, save: Callable[..., Any], resume: Callable[..., Any]
    ) -> None:
        self.own, self.save, self.resume = own, save, resume

    def trials(self, place: Path, at: int, calls: list[int]) -> Iterator[list[Life]]:
        """Yield two lives for each moment of the save after step `at`: killed in it, and the one that follows."""
        base, trial, number = place / f"base-{at}", place / "trial", at // self.own.interval - 1
        _new(base)
        if number:
            self.live(base, (number * self.own.interval, AFTER))
        many = calls[number] if number < len(calls) else 0
        moments = sorted(
            {*np.linspace(1, many, min(many, self.own.moments)).round().astype(int).tolist()}
        )
        for moment in moments:
            shutil.rmtree(trial, ignore_errors=True)
            shutil.copytree(base, trial, symlinks=True)
            first = self.live(trial, (at, moment))
            first.broken = next(
                (problem for store in _stores(trial) for problem in store.verify()), ""
            )
            yield [first, self.live(trial, (at + self.own.interval, AFTER))]

    def journey(self, folder: Path) -> Iterator[Life]:
        """Yield life after life until the run is done, or ends of itself."""
        for at in self.own.kills:
            life = self.live(folder, (at, AFTER))
            yield life
            if life.error:
                return
        yield self.live(folder)

    def live(self, folder: Path, kill: tuple[int, int] | None = None) -> Life:
        """Let the run live until it is done, or killed: after a step, before the call of this number of its save."""
        come, go = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.close(come)
            self._be_alive(folder, kill, go)
        os.close(go)
        with os.fdopen(come, "r", encoding="utf-8") as said:
            lines = [json.loads(line) for line in said if line.endswith("\n")]
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        life = Life()
        for name, value in lines:
            if name in ("saved", "calls"):
                getattr(life, name).append(value)
            elif name == "trained":
                life.trained += life.began is None
            else:
                setattr(life, name, value)
        if status == -signal.SIGALRM:
            life.error = f"after step {life.reached} it did not go on for {self.own.longest} s"
        elif status and not life.error and not life.killed:
            life.error = f"after step {life.reached} the process ended with status {status}"
        return life

    def _be_alive(self, folder: Path, kill: tuple[int, int] | None, go: int) -> None:
        """Be the process that trains; never return."""

        def tell(name: str, value: Any) -> None:
            os.write(go, json.dumps([name, value]).encode() + b"\n")

        where = "resume"
        try:
            signal.alarm(self.own.longest)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            take = Training.one_step

            def one_step(self: Training) -> None:
                take(self)
                tell("trained", self.step)

            Training.one_step = one_step  # type: ignore[method-assign]
            training = Training(self.own.seed)
            self.resume(folder, training)
            tell("state", state_of(training))
            tell("began", int(training.step))
            while training.step < self.own.steps:
                where = f"step {training.step + 1}"
                training.one_step()
                tell("reached", training.step)
                mine = kill is not None and kill[0] == training.step
                if training.step % self.own.interval == 0:
                    where, before = f"save after step {training.step}", training.step
                    with counting(kill[1] if kill and mine else AFTER, tell, where) as calls:
                        self.save(folder, training)
                    tell("calls", calls[0])
                    tell("saved", before)
                if mine:
                    tell("killed", f"after step {training.step}")
                    os.kill(os.getpid(), signal.SIGKILL)
            where = "end"
            tell("ended", state_of(training))
        except BaseException as error:
            with suppress(OSError):
                tell("error", f"{where} stopped with {type(error).__name__}: {error}")
            os._exit(1)
        os._exit(0)


@contextmanager
def counting(moment: int, tell: Callable[[str, Any], None], where: str) -> Iterator[list[int]]:
    """Count the calls that change files; die before the one of number `moment`, from 1."""
    calls = [0]

    def look(frame: Any, event: str, called: Any) -> None:
        if event != "c_call" or getattr(called, "__name__", "") not in CALLS:
            return
        calls[0] += 1
        if calls[0] == moment:
            tell("killed", f"in the {where}, before its file call {moment} ({called.__name__})")
            os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(look)  # of those that a save starts and waits for
    sys.setprofile(look)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def state_of(training: Training) -> list[str]:
    """Return hashes of weights, velocity, and of what draws the samples."""
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
