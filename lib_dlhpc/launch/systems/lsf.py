"""LSF."""

import json

from lib_dlhpc.launch.systems.base.system import Answer, System, run

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


def ask(native: str) -> Answer:
    """Return the state of a job."""
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


SYSTEM = System("bsub", "J", ("bkill",), ask, "LSB_JOBID")
