"""Slurm."""

import re

from lib_dlhpc.launch.energy import JobEnergy, slurm_joules, slurm_steps
from lib_dlhpc.launch.systems.base.system import Answer, System, run

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


def ask(native: str) -> Answer:
    """Return the state of a job."""
    shown = run("scontrol", "show", "job", "-o", native)
    if shown is None:
        return Answer(None, "scontrol does not answer")
    if shown.returncode == 0:
        fields = dict(word.split("=", 1) for word in shown.stdout.split() if "=" in word)
        return Answer(SLURM[fields["JobState"]], fields.get("Reason", ""))
    output = f"{shown.stdout}\n{shown.stderr}"  # a task cancelled before its start is not found
    if "Invalid job id" not in output and "not found" not in output:
        return Answer(None, shown.stderr.strip())
    # scontrol forgets ended jobs; accounting keeps them.
    kept = run("sacct", "-n", "-X", "-P", "-j", native, "-o", "State")
    if kept and kept.returncode == 0 and kept.stdout.strip():
        return Answer(SLURM[kept.stdout.split()[0]], "from sacct")
    return Answer("", "Slurm no longer knows it")


def find(name: str, task: int | None) -> str:
    """Return the id of a job by name; task: index in a job array."""
    found = run("squeue", "--me", "-h", "-r", "-t", "all", "-n", name, "-o", "%i")
    ending = "" if task is None else f"_{task}"
    return next((job for job in found.stdout.split() if job.endswith(ending)), "") if found else ""


def energy(native: str) -> JobEnergy | None:
    """Return the J that accounting counted for a job; None where no plugin counts energy, or none is there yet."""
    kept = run("sacct", "-n", "-P", "-j", native, "-o", "JobIDRaw,ConsumedEnergyRaw")
    if kept is None or kept.returncode or (joules := slurm_joules(kept.stdout)) is None:
        return None
    return JobEnergy(joules, slurm_steps(kept.stdout))


def most_tasks() -> int | None:
    """Return how many tasks an array may have: indices are below MaxArraySize."""
    shown = run("scontrol", "show", "config")
    found = shown and re.search(r"^MaxArraySize\s*=\s*(\d+)", shown.stdout, re.M)
    return int(found[1]) if found else None


SYSTEM = System(
    "sbatch",
    "job-name",
    ("scancel", "-Q"),
    ask,
    "SLURM_JOB_ID",
    find,
    energy,
    arrays=True,
    most_tasks=most_tasks,
)
