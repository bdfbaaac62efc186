"""Batch systems: submit, query, cancel. PSI/J writes the script and submits; queries are our own.

PSI/J reports a time limit or lack of memory as a plain failure, and raises on unknown reasons. So its polling thread
sleeps, and we parse the scheduler's output. Only shell-safe words reach a script: see `site`.
"""

import importlib
import json
import logging
import math
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from lib_dlhpc.launch.site import Site
from lib_dlhpc.spec.errors import SpecError

PROGRAMS = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub", "flux": "flux"}
# The option for the job name: PSI/J 0.9.11 omits JobSpec.name from its scripts.
NAMES = {"slurm": "job-name", "pbs": "N", "lsf": "J", "flux": "job-name"}
ARRAYS = ("slurm",)  # with tested job arrays
PATIENCE = 60  # s for a scheduler command
NEVER = 10**8  # s between two polls of PSI/J's thread
DEFAULT_LIMIT = 600.0  # s, if neither submission nor site sets a limit


@dataclass(frozen=True)
class Answer:
    """A scheduler's answer: one of jobs.STATES, "" for an unknown job, None for no answer."""

    state: str | None
    reason: str = ""


SLURM = {
    **dict.fromkeys(
        ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"), "queued"
    ),
    **dict.fromkeys(("SPECIAL_EXIT", "RESV_DEL_HOLD"), "queued"),
    **dict.fromkeys(("RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING"), "running"),
    **dict.fromkeys(("STOPPED", "RESIZING"), "running"),
    "COMPLETED": "done",
    **dict.fromkeys(("FAILED", "BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"), "failed"),
    **dict.fromkeys(("LAUNCH_FAILED", "RECONFIG_FAIL"), "failed"),
    "CANCELLED": "cancelled",
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), "out of time"),
    "OUT_OF_MEMORY": "out of memory",
}  # man squeue, "Job state codes"
PBS = {**dict.fromkeys("HMQTWU", "queued"), **dict.fromkeys("BERS", "running")}
PBS_ENDS = {0: "done", -29: "out of time", 265: "cancelled", 271: "cancelled"}
LSF = {
    **dict.fromkeys(("PEND", "PROV", "PSUSP", "WAIT"), "queued"),
    **dict.fromkeys(("RUN", "USUSP", "SSUSP", "UNKWN", "ZOMBI"), "running"),
    "DONE": "done",
}  # bjobs, "STAT"
LSF_ENDS = {
    "TERM_RUNLIMIT": "out of time",
    "TERM_DEADLINE": "out of time",
    "TERM_MEMLIMIT": "out of memory",
    "TERM_OWNER": "cancelled",
    "TERM_ADMIN": "cancelled",
    "TERM_FORCE_OWNER": "cancelled",
}  # bhist, "exit reasons"
FLUX = {
    **dict.fromkeys(("DEPEND", "PRIORITY", "SCHED"), "queued"),
    **dict.fromkeys(("RUN", "CLEANUP"), "running"),
    "COMPLETED": "done",
    "FAILED": "failed",
    "CANCELED": "cancelled",
    "TIMEOUT": "out of time",
}  # man flux-jobs, "status"


def check_here(scheduler: str) -> None:
    """Raise SpecError if a scheduler's commands or PSI/J are missing."""
    program = PROGRAMS[scheduler]
    if shutil.which(program) is None:
        raise SpecError(
            f"{scheduler}: there is no {program} here; submit from a login node, or --to local."
        )
    try:
        _psij()
    except ImportError:
        raise SpecError(
            f"{scheduler}: psij-python, which submits to it, is not installed."
        ) from None


def submit_job(
    site: Site,
    ranks: int,
    limit: float | None,
    name: str,
    words: Sequence[str],
    work: Path,
    tasks: int = 0,
) -> str:
    """Submit a job that runs `words`; return the scheduler's job id.

    work: a private folder for its script. tasks: size of a job array that runs `words` once per task, with its index
    from 0 in the scheduler's variable. The time limit is rounded up to a minute. Raises SpecError with the scheduler's
    message.
    """
    psij = _psij()
    job = psij.Job(_spec(site, ranks, limit, name, words, work, tasks))
    try:
        _executor(site.scheduler, work).submit(job)
        if job.native_id is None:  # Flux assigns it later
            seconds = timedelta(seconds=PATIENCE)
            job.wait(seconds, [psij.JobState.QUEUED, psij.JobState.ACTIVE])
    except (psij.SubmitException, psij.InvalidJobException, ImportError, OSError) as error:
        message = " ".join(str(error).split())
        raise SpecError(f"{site.scheduler} rejects the job: {message}") from None
    finally:
        for path in work.rglob("*"):  # the folder is private; make its files private too
            path.chmod(0o700 if path.is_dir() else 0o600)
    if job.native_id is None:
        raise SpecError(f"{site.scheduler} returns no job id.")
    return str(job.native_id)


def find(scheduler: str, name: str, task: int | None = None) -> str:
    """Return the scheduler's id of the job named `name`, "" if unknown.

    task: index of a task in a job array.
    """
    if scheduler != "slurm":
        return ""
    found = run("squeue", "--me", "-h", "-r", "-t", "all", "-n", name, "-o", "%i")
    ending = "" if task is None else f"_{task}"
    return next((job for job in found.stdout.split() if job.endswith(ending)), "") if found else ""


def ask(scheduler: str, native: str) -> Answer:
    """Return the scheduler's state of a job."""
    try:
        return ASK[scheduler](native)
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # unknown format
        return Answer(None, f"{scheduler} gives an unknown answer: {error!r}")


def end(scheduler: str, native: str) -> None:
    """Cancel a job, queued or running; no effect on an ended job. Raises SpecError."""
    words = {
        "slurm": ["scancel", "-Q", native],
        "pbs": ["qdel", native],
        "lsf": ["bkill", native],
        "flux": ["flux", "cancel", native],
    }[scheduler]
    done = run(*words)
    if done is None or (done.returncode and ask(scheduler, native).state in ("queued", "running")):
        message = done.stderr.strip() if done else "no answer"
        raise SpecError(f"{scheduler}: job {native} cannot be cancelled: {message}")


def places(site: Site, ranks: int) -> tuple[int, int]:
    """Return a job's nodes, and the cores that it requests on each."""
    per_node = site.ranks_per_node or ranks
    nodes = math.ceil(ranks / per_node)
    return nodes, ranks if nodes == 1 else per_node


def minutes(limit: float | None) -> int:
    """Return the time limit in minutes for the scheduler, from s."""
    return math.ceil((limit or DEFAULT_LIMIT) / 60)


def _spec(
    site: Site,
    ranks: int,
    limit: float | None,
    name: str,
    words: Sequence[str],
    work: Path,
    tasks: int,
) -> Any:
    psij = _psij()
    nodes, per_node = places(site, ranks)
    if nodes > 1 and site.scheduler == "flux":
        raise SpecError(f"flux: {nodes} nodes; PSI/J supports one node, so omit ranks_per_node.")
    if (
        site.scheduler == "flux"
    ):  # PSI/J supports only tasks there: one task, with a core for each rank
        resources = psij.ResourceSpecV1(process_count=1, cpu_cores_per_process=ranks)
    else:
        resources = psij.ResourceSpecV1(node_count=nodes, processes_per_node=per_node)
    resources.exclusive_node_use = site.exclusive
    own: dict[str, object] = {f"{site.scheduler}.{NAMES[site.scheduler]}": name}
    own |= {f"{site.scheduler}.{key}": value for key, value in site.extra.items()}
    if tasks:
        own[f"{site.scheduler}.array"] = f"0-{tasks - 1}"
    attributes = psij.JobAttributes(
        duration=timedelta(minutes=minutes(limit)),
        queue_name=site.partition or None,
        account=site.account or None,
        custom_attributes=own,
    )
    return psij.JobSpec(
        executable=words[0],
        arguments=list(words[1:]),
        resources=resources,
        attributes=attributes,
        stdout_path=work / "out.txt",
        stderr_path=work / "err.txt",
        launcher="single",
    )


def _psij() -> Any:
    """Import PSI/J, and restore the SIGCHLD handler, which it replaces."""
    kept = signal.getsignal(signal.SIGCHLD)
    logging.getLogger("psij.executors.local").setLevel(logging.ERROR)  # it warns about threads
    import psij

    importlib.import_module("psij.executors.local")
    if kept is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, kept)
    return psij


def _executor(scheduler: str, work: Path) -> Any:
    from psij import JobExecutor
    from psij.executors.batch.batch_scheduler_executor import BatchSchedulerExecutorConfig

    config = BatchSchedulerExecutorConfig(
        work_directory=work,
        queue_polling_interval=NEVER,
        initial_queue_polling_delay=NEVER,
        keep_files=True,
    )
    return JobExecutor.get_instance(scheduler, config=config)


def run(*words: str) -> subprocess.CompletedProcess[str] | None:
    """Run a scheduler command; return its completed process, None if it fails to run."""
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _ask_slurm(native: str) -> Answer:
    shown = run("scontrol", "show", "job", "-o", native)
    if shown is None:
        return Answer(None, "scontrol does not answer")
    if shown.returncode == 0:
        fields = dict(word.split("=", 1) for word in shown.stdout.split() if "=" in word)
        return Answer(SLURM[fields["JobState"]], fields.get("Reason", ""))
    output = f"{shown.stdout}\n{shown.stderr}"  # a task cancelled before its start is not found
    if "Invalid job id" not in output and "not found" not in output:
        return Answer(None, shown.stderr.strip())
    kept = run(
        "sacct", "-n", "-X", "-P", "-j", native, "-o", "State"
    )  # accounting keeps ended jobs
    if kept and kept.returncode == 0 and kept.stdout.strip():
        return Answer(SLURM[kept.stdout.split()[0]], "from sacct")
    return Answer("", "Slurm no longer knows it")


def _ask_pbs(native: str) -> Answer:
    shown = run("qstat", "-x", "-f", "-F", "json", native)
    if shown is None or not shown.stdout.strip():
        return Answer("" if shown and "Unknown Job" in shown.stderr else None, "qstat")
    (job,) = json.loads(shown.stdout)["Jobs"].values()
    message = str(job.get("comment", ""))
    if job["job_state"] in PBS:
        return Answer(PBS[job["job_state"]], message)
    code = job.get("Exit_status")
    if code is None:  # ended before its start
        return Answer("cancelled", message)
    return Answer(PBS_ENDS.get(int(code), "failed"), message)


def _ask_lsf(native: str) -> Answer:
    shown = run("bjobs", "-a", "-o", "stat exit_reason", "-json", native)
    if shown is None:
        return Answer(None, "bjobs does not answer")
    (job,) = json.loads(shown.stdout)["RECORDS"]
    if "ERROR" in job:
        return Answer("", job["ERROR"])
    reason = job.get("EXIT_REASON", "")
    if job["STAT"] in LSF:
        return Answer(LSF[job["STAT"]], reason)
    return Answer(LSF_ENDS.get(reason.partition(":")[0], "failed"), reason)


def _ask_flux(native: str) -> Answer:
    shown = run("flux", "jobs", "-n", "-o", "{status}", native)
    if shown is None:
        return Answer(None, "flux does not answer")
    if shown.returncode or not shown.stdout.strip():
        return Answer("", shown.stderr.strip())
    return Answer(FLUX[shown.stdout.split()[0]])


ASK: dict[str, Callable[[str], Answer]] = {
    "slurm": _ask_slurm,
    "pbs": _ask_pbs,
    "lsf": _ask_lsf,
    "flux": _ask_flux,
}
