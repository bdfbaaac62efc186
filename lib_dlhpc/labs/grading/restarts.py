"""Lab 8's run, killed and restarted: training is here, only save and resume run in a learner's process.

Every attempt is a fresh process, which dies where it is killed: its call is not carried out, and it is never answered
again. The seed of the training is nobody's, so a resume can neither know its state nor compute it anew unseen.
"""

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.labs.findings import Finding
from lib_dlhpc.labs.grading.files import Folder, Killed
from lib_dlhpc.labs.mistakes import Endless, LabError
from lib_dlhpc.labs.survive.killed_runs import (
    AFTER,
    Attempt,
    Attempts,
    RestartTask,
    Training,
    result_of,
    state_of,
)
from lib_dlhpc.labs.survive.save_and_resume import restart_findings
from lib_dlhpc.lifetime import owned


def findings(
    save: Callable[..., Any], resume: Callable[..., Any], own: RestartTask
) -> list[Finding]:
    """Return what holds for a learner's save and resume. Raises what ends a hand-in: Endless."""
    own = own._replace(seed=secrets.randbits(32))
    with owned.temporary_folder("dlhpc-restarts-") as place:
        return restart_findings(result_of(RemoteAttempts(own, save, resume), place), own)


class SteppedTraining(Training):
    """Training whose state a process sends back. trained: steps that it asked for."""

    trained = 0

    def plain(self) -> list[Any]:
        """Return the state as it is sent."""
        return [self.weights, self.velocity, self.rng.bit_generator.state, self.step]

    def take(self, state: Any) -> None:
        """Be in the state that a process has sent. Raises LabError where it is none."""
        try:
            weights, velocity, order, step = state
            self.rng.bit_generator.state = order
        except Exception:  # whatever numpy makes of it
            raise LabError("training.rng is no longer a numpy Generator of the same kind") from None
        if not (isinstance(weights, np.ndarray) and isinstance(velocity, np.ndarray)):
            raise LabError("training.weights and training.velocity have to be arrays")
        if isinstance(step, bool) or not isinstance(step, int | np.integer):
            raise LabError("training.step has to be a whole number")
        self.weights, self.velocity, self.step = weights, velocity, int(step)

    def stepped(self, state: Any) -> list[Any]:
        """Take a step that a process asks for; return the state after it."""
        self.take(state)
        self.one_step()
        self.trained += 1
        return self.plain()


class RemoteAttempts(Attempts):
    """Runs one attempt after the other, each with a process of its own."""

    def run(self, folder: Path, kill: tuple[int, int] | None = None) -> Attempt:
        """Run until completion, or until killed: after a step, before this file call of its save."""
        with ThreadPoolExecutor(1) as thread:  # a thread has its own process
            return thread.submit(self._run, folder, kill).result()

    def _run(self, folder: Path, kill: tuple[int, int] | None) -> Attempt:
        attempt, where = Attempt(), ["resume"]
        try:
            for _ in self._steps(attempt, folder, kill, where):
                pass
        except Killed as killed:
            attempt.killed = str(killed)
        except Endless:
            raise
        except Exception as error:
            attempt.error = f"{where[0]} stopped with {type(error).__name__}: {error}"
        return attempt

    def _steps(
        self, attempt: Attempt, folder: Path, kill: tuple[int, int] | None, where: list[str]
    ) -> Iterator[int]:
        """Yield after each step. where: what is going on."""
        training = SteppedTraining(self.own.seed)
        training.take(self.resume(Folder(folder), training))
        attempt.trained, attempt.state = training.trained, state_of(training)
        attempt.began = training.step
        while training.step < self.own.steps:
            training.one_step()
            attempt.reached, mine = training.step, kill is not None and kill[0] == training.step
            if training.step % self.own.interval == 0:
                where[0] = f"save after step {training.step}"
                moment = kill[1] if kill and mine else AFTER
                attempt.calls.append(self._saved(folder, training, moment, where[0]))
                attempt.saved.append(attempt.reached)
            if mine:
                raise Killed(f"after step {attempt.reached}")
            where[0] = f"step {training.step + 1}"
            yield training.step
        attempt.ended = state_of(training)

    def _saved(self, folder: Path, training: SteppedTraining, moment: int, where: str) -> int:
        """Save; return how many calls changed files. Raises Killed before call number `moment`, from 1."""
        calls = 0

        def changes(name: str) -> None:
            nonlocal calls
            calls += 1
            if calls == moment:
                raise Killed(f"in the {where}, before its file call {calls} ({name})")

        training.take(self.save(Folder(folder, changes), training))
        return calls
