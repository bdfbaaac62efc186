"""Run a coupled workflow on ranks of this machine; its folder holds the TOML, the result and the timeline."""

import json
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.launch.folder import JobError
from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.lifetime.owned import temporary_folder
from lib_dlhpc.spec.workflow import Costs, Workflow, dumps
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.store import load

PATIENCE = 3600.0  # s
WORKER = "lib_dlhpc.training.coupled.worker"


@dataclass(frozen=True, eq=False)
class CoupledResult:
    """The result of a run on MPI ranks."""

    timeline: Timeline
    ranks: int
    cores: int  # available to the ranks
    seconds: float
    costs: Costs  # measured, or from the workflow
    steps: int  # of training
    losses: tuple[float, ...]
    # On unseen fields, before and after training; 1: no better than predicting no change.
    errors: tuple[float, float]
    diffusivity: float  # as learned, 1/s
    weights: NDArray[Any]


def run_coupled(
    workflow: Workflow, ranks: int, folder: Path | None = None, patience: float = PATIENCE
) -> CoupledResult:
    """Run a workflow on `ranks` MPI ranks; without `folder` its files are temporary.

    Raises SpecError for too few ranks or missing MPI, JobError if the run fails or has not ended after `patience` s.
    """
    workflow.sides(ranks)
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(temporary_folder("dlhpc-couple-"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "workflow.toml").write_text(dumps(workflow), encoding="utf-8")
        words = ("-m", WORKER, str(folder.resolve()), str(ranks))
        try:
            done = run_to_end(ranks, *words, patience=patience)
        except subprocess.TimeoutExpired:
            raise JobError(f"The workflow has not ended after {patience:g} s.") from None
        if done.returncode:
            raise JobError(f"The workflow failed: {_last_words(done.stderr or done.stdout)}")
        return _read(folder)


def _read(folder: Path) -> CoupledResult:
    table = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    table["costs"] = Costs(**table["costs"])
    table["losses"], table["errors"] = tuple(table["losses"]), tuple(table["errors"])
    weights = np.load(folder / "weights.npy")
    return CoupledResult(load(folder / "timeline.npz"), **table, weights=weights)


def _last_words(text: str) -> str:
    """Return the last line that names an error, or else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line or "Diverged: " in line]
    return (named or lines or ["no output"])[-1]
