"""Flux."""

from lib_dlhpc.launch.systems.base.system import Answer, System, run

FLUX = {
    **dict.fromkeys(("DEPEND", "PRIORITY", "SCHED"), "queued"),
    **dict.fromkeys(("RUN", "CLEANUP"), "running"),
    "COMPLETED": "done",
    "FAILED": "failed",
    "CANCELED": "cancelled",
    "TIMEOUT": "out of time",
}  # man flux-jobs, "status"


def ask(native: str) -> Answer:
    """Return the state of a job."""
    shown = run("flux", "jobs", "-n", "-o", "{status}", native)
    if shown is None:
        return Answer(None, "flux does not answer")
    if shown.returncode or not shown.stdout.strip():
        return Answer("", shown.stderr.strip())
    return Answer(FLUX[shown.stdout.split()[0]])


SYSTEM = System("flux", "job-name", ("flux", "cancel"), ask, "FLUX_JOB_ID", one_node=True)
