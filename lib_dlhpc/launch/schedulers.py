"""Jobs of a batch system: submit, query, cancel. PSI/J writes the script and submits; queries are our own.

PSI/J reports a time limit or lack of memory as a plain failure, and raises on unknown reasons. So its polling thread
sleeps, and we parse the scheduler's output. Only shell-safe words reach a script: see `site`.
"""

import importlib
import io
import logging
import math
import shutil
import signal
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.extras import missing
from lib_dlhpc.launch.site import Site
from lib_dlhpc.launch.systems import Answer, run, system
from lib_dlhpc.launch.systems.base.system import PATIENCE

NEVER = 10**8  # s between two polls of PSI/J's thread
DEFAULT_LIMIT = 600.0  # s, if neither submission nor site sets a limit


def check_here(scheduler: str) -> None:
    """Raise SpecError if a scheduler's commands or PSI/J are missing."""
    program = system(scheduler).submits
    if shutil.which(program) is None:
        raise SpecError(
            f"{scheduler}: there is no {program} here; submit from a login node, or --to local."
        )
    try:
        _psij()
    except ImportError:
        raise SpecError(f"{scheduler} needs PSI/J: {missing('psij')}") from None


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


def job_script(
    site: Site, ranks: int, limit: float, name: str, words: Sequence[str], work: Path
) -> str:
    """Return the script that `submit_job` submits, without submitting it; `work` must exist. Raises SpecError."""
    try:
        psij = _psij()
    except ImportError:
        raise SpecError(f"{site.scheduler} needs PSI/J: {missing('psij')}") from None
    job = psij.Job(_spec(site, ranks, limit, name, words, work, 0))
    executor, text = _executor(site.scheduler, work), io.StringIO()
    executor.generate_submit_script(job, executor._create_script_context(job), text)
    return text.getvalue()


def ask(scheduler: str, native: str) -> Answer:
    """Return the scheduler's state of a job."""
    try:
        return system(scheduler).ask(native)
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # unknown format
        return Answer(None, f"{scheduler} gives an unknown answer: {error!r}")


def end(scheduler: str, native: str) -> None:
    """Cancel a job, queued or running; no effect on an ended job. Raises SpecError."""
    done = run(*system(scheduler).cancel, native)
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
    own_system = system(site.scheduler)
    if nodes > 1 and own_system.one_node:
        raise SpecError(
            f"{site.scheduler}: {nodes} nodes; PSI/J supports one node, so omit ranks_per_node."
        )
    if own_system.one_node:  # one task, with a core for each rank
        resources = psij.ResourceSpecV1(process_count=1, cpu_cores_per_process=ranks)
    else:
        resources = psij.ResourceSpecV1(node_count=nodes, processes_per_node=per_node)
    resources.exclusive_node_use = site.exclusive
    own: dict[str, object] = {f"{site.scheduler}.{own_system.name_option}": name}
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
