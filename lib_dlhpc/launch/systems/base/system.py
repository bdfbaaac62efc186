"""System: what a file of a batch system declares."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from lib_dlhpc.launch.energy import JobEnergy

PATIENCE = 60  # s for a scheduler command


@dataclass(frozen=True)
class Answer:
    """A scheduler's answer: one of jobs.STATES, "" for an unknown job, None for no answer."""

    state: str | None
    reason: str = ""


def unknown(name: str, task: int | None) -> str:
    """Return "": the system does not find jobs by name."""
    return ""


def uncounted(native: str) -> JobEnergy | None:
    """Return None: the system does not count energy."""
    return None


def unlimited() -> int | None:
    """Return None: the system does not say how long an array may be."""
    return None


@dataclass(frozen=True)
class System:
    """A batch system: its commands, and how to read their answers."""

    submits: str  # the program; it is missing where the system is
    name_option: str  # of the job name: PSI/J 0.9.11 omits JobSpec.name from its scripts
    cancel: tuple[str, ...]  # the command, without the job id
    ask: Callable[[str], Answer]  # of a job id
    job_id: str  # the environment variable that has it within a job
    find: Callable[[str, int | None], str] = unknown  # a job id by name, and index in its job array
    energy: Callable[[str], JobEnergy | None] = uncounted  # of an ended job, on all of its nodes
    arrays: bool = False  # with tested job arrays
    most_tasks: Callable[[], int | None] = unlimited  # of an array; None where it is not known
    one_node: bool = False  # PSI/J supports only tasks on one node there


def run(*words: str) -> subprocess.CompletedProcess[str] | None:
    """Run a scheduler command; return its completed process, None if it fails to run."""
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
