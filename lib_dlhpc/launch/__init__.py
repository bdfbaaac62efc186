"""Run experiments on MPI ranks, here or in a batch system; each run has one run folder.

submit.py  submit(experiment, ranks, to="slurm"): a BatchJob; to="local": this machine, in the same way
jobs.py    BatchJob, attach(folder): the job of a run folder
task.py    jobs other than training: a program, a notebook (notebook.py), engines for one (engines.py);
           program.py, execute.py, engines_job.py, engine.py run inside the job
site.py    Site: account, partition, modules, launcher; which texts a job script may contain
local.py   start(experiment, ranks): a Job that can be watched and cancelled
origin.py  where a run's snapshots go, and from which version it starts
batch.py   the program of a job: starts and ends the ranks, records their exit
schedulers.py  a job of a batch system: submit (PSI/J), query, cancel; systems/: Slurm, PBS, LSF, Flux, one file each
folder.py  a run folder: lock, status files, errors; prepare.py makes one ready for a run
crate.py   a run folder described as an RO-Crate
dry_run.py the scripts of a job that is not submitted
energy.py  joules of a run from RAPL, NVML or Slurm, or modeled
coupled.py run_coupled: a coupled workflow on ranks of this machine, to its end
mpi.py     which mpiexec starts ranks here
trace_run.py  trace_run: a program on ranks with its MPI calls recorded; traced.py runs on each rank
network/   ranks in private network namespaces, behind links of a chosen bandwidth and latency
"""

from lib_dlhpc.launch.jobs import BatchJob, attach
from lib_dlhpc.launch.local import Job, JobError, start
from lib_dlhpc.launch.site import Site, load_site
from lib_dlhpc.launch.submit import submit, submit_sweep, submit_task, submit_tasks

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
    "submit_tasks",
]
