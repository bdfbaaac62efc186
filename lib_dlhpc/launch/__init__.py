"""Running an experiment: here, with mpiexec; results come back to one run folder.

local.py   start(experiment, ranks): a Job that can be watched and cancelled
origin.py  where its snapshots go, and at whose version it begins
mpi.py     which mpiexec starts ranks here
"""

from lib_dlhpc.launch.local import Job, JobError, start

__all__ = ["Job", "JobError", "start"]
