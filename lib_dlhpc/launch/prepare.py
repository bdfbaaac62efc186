"""A run folder prepared for a new or resumed run: checked, locked, with its experiment."""

from pathlib import Path
from typing import Any, BinaryIO

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.folder import LOG, RESULT, STATUS, lock
from lib_dlhpc.launch.jobs import TICKET, attach, read_ticket
from lib_dlhpc.launch.origin import check_snapshots, settle_snapshots
from lib_dlhpc.spec.experiment import Experiment, dump, load, to_tables

# Fields of [strategy] for the parallel layout: a snapshot holds unsharded tensors, so any of them may change.
LAYOUT = (
    *("nodes", "devices_per_node", "batch", "microbatches", "schedule", "chunks"),
    *("pipeline_runtime", "stage_cut"),
    *("data", "tensor", "pipeline", "spatial", "context", "context_exchange"),
    *("split", "sequence_parallel", "tensor_pieces", "tensor_overlap", "fused_attention"),
    *("zero", "shards", "gather", "zero_unit", "recompute", "loss", "offload"),
    *("allreduce", "overlap", "bucket", "power_limit"),
)


def prepare(
    experiment: Experiment,
    folder: Path,
    resume: bool,
    snapshot_every: str | int | None,
    origin: str | None,
) -> BinaryIO:
    """Prepare a folder for a new or resumed run; return its log, open and locked for this run.

    Raises SpecError for an unsuitable folder, or one with a run in progress; the folder is then unchanged.
    """
    try:
        _check_folder(experiment, folder, resume)
        done = (folder / RESULT).exists() and not (folder / "snapshot.npz").exists()
        check_snapshots(experiment, folder, resume, snapshot_every, origin, done)
        folder.mkdir(parents=True, exist_ok=True)
        log = open(folder / LOG, "ab")  # noqa: SIM115
        lock(log, folder)
        try:
            _refuse_a_job(folder)
            settle_snapshots(folder, resume, snapshot_every, origin)
            dump(experiment, folder / "experiment.toml")
        except BaseException:
            log.close()
            raise
    except OSError as error:
        raise SpecError(f"{folder}: {error.strerror}.") from None
    return log


def _check_folder(experiment: Experiment, folder: Path, resume: bool) -> None:
    if (folder / "task.json").exists():
        raise SpecError(f"{folder}: holds a program or a notebook; name another folder.")
    held = (folder / "experiment.toml").exists() and not _never_began(folder)
    if held and not resume:
        raise SpecError(f"{folder}: holds a run already; resume it, or name another folder.")
    if resume and not held:
        raise SpecError(f"{folder}: holds no run to resume.")
    if resume:
        held_there = load(folder / "experiment.toml")
        mine, theirs = _what_lasts(experiment), _what_lasts(held_there)
        for section in ("model", "dataset", "strategy", "training", "run"):
            if section == "strategy":
                _check_batch(experiment, held_there, folder)
            if mine.get(section) != theirs.get(section):
                raise SpecError(
                    f"{folder}: holds a run with another [{section}]; resume it with its own"
                    f" {folder / 'experiment.toml'}."
                )


def _never_began(folder: Path) -> bool:
    """Whether a folder was prepared for a run, and its process ended before that began."""
    log = folder / LOG
    begun = any((folder / name).exists() for name in (STATUS, TICKET, RESULT))
    return log.exists() and not log.stat().st_size and not begun


def _check_batch(experiment: Experiment, held: Experiment, folder: Path) -> None:
    before, now = int(held.global_batch), int(experiment.global_batch)
    if before == now:
        return
    unit = "replica" if experiment.strategy.replica > 1 else "device"
    raise SpecError(
        f"{folder}: its steps have {before} samples, but the steps of this run would have {now}. A resumed run may"
        " change the parallel layout, but not the global batch:"
        f" set strategy.batch, the batch of one {unit}, so that the global batch stays {before}."
    )


def _what_lasts(experiment: Experiment) -> dict[str, Any]:
    """Return what a resumed run must not change: everything except its length and its parallel layout."""
    tables = to_tables(experiment)
    tables["run"] = {"seed": tables.get("run", {}).get("seed", 0)}
    strategy = tables.get("strategy", {})
    lasts = {name: value for name, value in strategy.items() if name not in LAYOUT}
    tables["strategy"] = lasts | {"global batch": int(experiment.global_batch)}
    return tables


def _refuse_a_job(folder: Path) -> None:
    """Raise SpecError for a folder with a queued or running batch job."""
    if not (folder / TICKET).exists() or read_ticket(folder).site.scheduler == "local":
        return  # a job on this machine holds the lock
    if (job := attach(folder)).state in ("queued", "running"):
        raise SpecError(
            f"{folder}: {job.label} is {job.state} there; wait for it, or end it: dlhpc jobs cancel {folder}"
        )
