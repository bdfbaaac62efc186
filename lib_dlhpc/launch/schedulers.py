"""Batch systems: hand in a job, ask how it is, end it. PSI/J writes the script and submits; we ask ourselves.

PSI/J's own watch takes a time limit and a lack of memory for plain failures, and a reason that it does not know
for an error. So its queue thread sleeps, and the scheduler's own words are read here. Nothing reaches a script
that a shell could take for more than a word: see `site`.
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
# The option that names a job: PSI/J 0.9.11 leaves JobSpec.name out of its scripts.
NAMES = {"slurm": "job-name", "pbs": "N", "lsf": "J", "flux": "job-name"}
ARRAYS = ("slurm",)  # whose job arrays were tried
PATIENCE = 60  # s for a command of a scheduler
NEVER = 10**8  # s between two looks of PSI/J's own thread
DEFAULT_LIMIT = 600.0  # s, where neither submission nor site name a limit


@dataclass(frozen=True)
class Answer:
    """What a scheduler says of a job: one of jobs.STATES, "" if it knows none, None if it does not answer."""

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
    """Raise SpecError where a scheduler's commands, or PSI/J, are not."""
    program = PROGRAMS[scheduler]
    if shutil.which(program) is None:
        raise SpecError(
            f"{scheduler}: there is no {program} here; submit where it is (on a login node), or --to local."
        )
    try:
        _psij()
    except ImportError:
        raise SpecError(f"{scheduler}: psij-python is not installed; it submits to it.") from None


def submit_job(
    site: Site,
    ranks: int,
    limit: float | None,
    name: str,
    words: Sequence[str],
    work: Path,
    tasks: int = 0,
) -> str:
    """Give a scheduler a job that runs `words`, and return the scheduler's name for it.

    work: a private folder for its script. tasks: it is a job array, which runs `words` once for each, with its
    number from 0 in the scheduler's variable. The time limit is rounded up to a minute. Raises SpecError with
    what the scheduler says against it.
    """
    psij = _psij()
    job = psij.Job(_spec(site, ranks, limit, name, words, work, tasks))
    try:
        _executor(site.scheduler, work).submit(job)
        if job.native_id is None:  # Flux tells it later
            seconds = timedelta(seconds=PATIENCE)
            job.wait(seconds, [psij.JobState.QUEUED, psij.JobState.ACTIVE])
    except (psij.SubmitException, psij.InvalidJobException, ImportError, OSError) as error:
        message = " ".join(str(error).split())
        raise SpecError(f"{site.scheduler} does not take the job: {message}") from None
    finally:
        for path in work.rglob("*"):  # the folder is private already; so is what is moved out of it
            path.chmod(0o700 if path.is_dir() else 0o600)
    if job.native_id is None:
        raise SpecError(f"{site.scheduler} does not say what it calls the job.")
    return str(job.native_id)


def find(scheduler: str, name: str, task: int | None = None) -> str:
    """Return the scheduler's name for the job that we called `name`, "" if there is none or nobody says.

    task: of a job array, the number of one of its tasks.
    """
    if scheduler != "slurm":
        return ""
    found = run("squeue", "--me", "-h", "-r", "-t", "all", "-n", name, "-o", "%i")
    ending = "" if task is None else f"_{task}"
    return next((job for job in found.stdout.split() if job.endswith(ending)), "") if found else ""


def ask(scheduler: str, native: str) -> Answer:
    """Return how a job is, as the scheduler has it."""
    try:
        return ASK[scheduler](native)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:  # words that nobody foresaw
        return Answer(None, f"{scheduler} says what is not understood: {error!r}")


def end(scheduler: str, native: str) -> None:
    """End a job, queued or running. A job that has ended stays as it is. Raises SpecError."""
    words = {
        "slurm": ["scancel", "-Q", native],
        "pbs": ["qdel", native],
        "lsf": ["bkill", native],
        "flux": ["flux", "cancel", native],
    }[scheduler]
    done = run(*words)
    if done is None or (done.returncode and ask(scheduler, native).state in ("queued", "running")):
        message = done.stderr.strip() if done else "no answer"
        raise SpecError(f"{scheduler}: job {native} cannot be ended: {message}")


def places(site: Site, ranks: int) -> tuple[int, int]:
    """Return on how many nodes a job's ranks are, and how many cores it asks for on each."""
    per_node = site.ranks_per_node or ranks
    nodes = math.ceil(ranks / per_node)
    return nodes, ranks if nodes == 1 else per_node


def minutes(limit: float | None) -> int:
    """Return the time limit that a scheduler is given, of one in s."""
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
        raise SpecError(f"flux: {nodes} nodes; PSI/J gives a job one, so ranks_per_node is all.")
    if site.scheduler == "flux":  # where PSI/J knows tasks only: one, that has a core for each rank
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
    """Import PSI/J; it takes the signal of ended children for itself, which is others' as well."""
    kept = signal.getsignal(signal.SIGCHLD)
    logging.getLogger("psij.executors.local").setLevel(logging.ERROR)  # of threads that may not
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
    """Return what came of a scheduler's command, None if it cannot be had."""
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
    output = (
        f"{shown.stdout}\n{shown.stderr}"  # of a task that was cancelled before it began: not found
    )
    if "Invalid job id" not in output and "not found" not in output:
        return Answer(None, shown.stderr.strip())
    kept = run("sacct", "-n", "-X", "-P", "-j", native, "-o", "State")  # it forgets nothing
    if kept and kept.returncode == 0 and kept.stdout.strip():
        return Answer(SLURM[kept.stdout.split()[0]], "as sacct has it")
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
    if code is None:  # ended before it began
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
