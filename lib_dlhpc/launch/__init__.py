"""Running an experiment: here, with mpiexec; results come back to one run folder.

submit.py  submit(experiment, ranks, to="slurm"): a BatchJob; to="local": this machine in the same way
jobs.py    BatchJob, attach(folder): the job of a run folder, found again by whomever
task.py    what a job may do other than train: a program, a notebook (notebook.py), engines for one (engines.py);
           program.py, execute.py, engines_job.py, engine.py are what then runs
site.py    Site: account, partition, modules, launcher; what may stand in a job script
local.py   start(experiment, ranks): a Job that can be watched and cancelled
origin.py  where its snapshots go, and at whose version it begins
batch.py   what a job runs: it starts and ends the ranks, and writes down how that went
schedulers.py  Slurm, PBS, LSF, Flux: hand in (PSI/J), ask, end
folder.py  a run folder: one run at a time, and what it says of itself
coupled.py run_coupled: a coupled workflow on ranks of this machine, to its end
mpi.py     which mpiexec starts ranks here
trace_run.py  trace_run: a program on ranks with its MPI calls recorded; traced.py is what runs on each
network/   ranks in private networks of this machine, behind links of a chosen bandwidth and latency
"""

from lib_dlhpc.launch.jobs import BatchJob, attach
from lib_dlhpc.launch.local import Job, JobError, start
from lib_dlhpc.launch.site import Site, load_site
from lib_dlhpc.launch.submit import submit, submit_sweep, submit_task

__all__ = [
    "BatchJob",
    "Job",
    "JobError",
    "Site",
    "attach",
    "load_site",
    "start",
    "submit",
    "submit_sweep",
    "submit_task",
]
