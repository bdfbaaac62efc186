"""The predicted step time on this machine, as one sentence after a run."""

from lib_dlhpc.comparison.placed import placed
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.measured.bands import ALL, seconds_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.measured_machine import foreign
from lib_dlhpc.spec.units import format_quantity as show


def step_here(experiment: Experiment, ranks: int, machine: Machine | None = None) -> str:
    """Return the predicted step time on `ranks` ranks of this machine, and the source of its numbers.

    machine: a measured one; None: the user's own calibration, or else the catalog's stand-in. An unreadable
    calibration is reported, not raised.
    """
    try:
        here = placed(experiment, ranks, machine)
        seconds = seconds_of(predict(here.experiment))[ALL]
        step = show(float(seconds), "s")
    except SpecError as error:
        return f"no prediction: {error}"
    measured = here.experiment.machine.measured
    if measured is None:
        return (
            f"predicted {step} for {here.experiment.machine.name!r}, the catalog's stand-in for this machine;"
            " `dlhpc calibrate` measures it"
        )
    doubts = foreign(here.experiment.machine)
    may = f", which may no longer hold: {doubts[0]}" if doubts else ""
    return f"predicted {step} by your calibration of this machine ({measured.date}){may}"
