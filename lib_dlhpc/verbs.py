"""Verbs that need several packages: train on ranks of this machine, and calibrate it."""

from pathlib import Path
from typing import Any

from lib_dlhpc.calibration.machine import Calibrated, fit_machine, measure_machine
from lib_dlhpc.launch.local import start
from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.given import check_given
from lib_dlhpc.spec.host import cores

SECONDS = 60.0  # of a calibration


def run(
    experiment: Experiment,
    ranks: int | None = None,
    folder: Path | str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train on MPI ranks of this machine, wait for the run to end, and return its result.

    ranks: default, devices plus servers of the experiment. folder: the run folder; default, a temporary one,
    which is not removed. options: see `lib_dlhpc.launch.start`, which returns a job at once. Raises SpecError for an
    experiment that cannot run, JobError if the run fails.
    """
    check_given(experiment)
    if ranks is None:
        ranks = int(experiment.devices + experiment.servers)
    return start(experiment, ranks, None if folder is None else Path(folder), **options).wait()


def calibrate(ranks: int | None = None, seconds: float = SECONDS) -> Calibrated:
    """Measure this machine on MPI ranks, and return a machine with the interval of each parameter.

    ranks: default 2, or 1 on one core. seconds: approximate. Raises CalibrationError, and SpecError without MPI.
    """
    return fit_machine(measure_machine(ranks or min(2, cores()), seconds, run_to_end))
