"""The step of a network that is split, priced from its program (price.py)."""

from typing import TYPE_CHECKING, Any

from lib_dlhpc.costs import stragglers
from lib_dlhpc.spec.experiment import Experiment

if TYPE_CHECKING:
    from lib_dlhpc.prediction.price import Step


def split_step(experiment: Experiment, scale: Any) -> "Step":
    """Predict the step of a scalar experiment, with local updates the mean step; compute time is `scale` times the
    roofline's.

    Raises SpecError where the network cannot be split so.
    """
    from lib_dlhpc.parallel import steps  # these two import 25 modules; whole networks need none
    from lib_dlhpc.prediction.price import mean_step, price

    cycle, jitter = steps(experiment, scale), experiment.machine.jitter
    slow = float(stragglers.slowest(experiment.devices, jitter, len(cycle)))
    last = price(cycle[-1], slow)
    return mean_step(price(cycle[0], slow), last, len(cycle)) if len(cycle) > 1 else last
