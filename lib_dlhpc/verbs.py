"""Verbs that take more than one package: train on this machine's ranks, and measure it."""

from pathlib import Path
from typing import Any

from lib_dlhpc.calibration.machine import Calibrated, fit_machine, measure_machine
from lib_dlhpc.launch.local import start
from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.measured import cores

SECONDS = 60.0  # of a calibration


def run(
    experiment: Experiment,
    ranks: int | None = None,
    folder: Path | str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train for real on MPI ranks of this machine, wait for the end, and return its result.

    ranks: as many as the experiment has devices and servers. folder: the run folder; a temporary one by default,
    which stays. options: see `lib_dlhpc.launch.start`, which returns a job at once. Raises SpecError for what
    cannot be run, JobError where the run fails.
    """
    if ranks is None:
        ranks = int(experiment.devices + experiment.servers)
    return start(experiment, ranks, None if folder is None else Path(folder), **options).wait()


def calibrate(ranks: int | None = None, seconds: float = SECONDS) -> Calibrated:
    """Measure this machine on MPI ranks, and return its machine with the interval of each number.

    ranks: 2, or 1 on one core. seconds: about how long. Raises CalibrationError, and SpecError where MPI is missing.
    """
    return fit_machine(measure_machine(ranks or min(2, cores()), seconds, run_to_end))
