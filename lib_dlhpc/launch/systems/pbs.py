"""PBS."""

import json

from lib_dlhpc.launch.systems.base.system import Answer, System, run

PBS = {**dict.fromkeys("HMQTWU", "queued"), **dict.fromkeys("BERS", "running")}
PBS_ENDS = {0: "done", -29: "out of time", 265: "cancelled", 271: "cancelled"}


def ask(native: str) -> Answer:
    """Return the state of a job."""
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


SYSTEM = System("qsub", "N", ("qdel",), ask, "PBS_JOBID")
