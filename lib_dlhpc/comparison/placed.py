"""An experiment mapped onto this machine: a number of ranks, and this machine's measured numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import is_partitioned
from lib_dlhpc.prediction.limits.rank_limits import check_fits
from lib_dlhpc.prediction.measured.bands import calibration_of
from lib_dlhpc.spec import run_only
from lib_dlhpc.spec.calibration import Calibration
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.given import check_given
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.machine import Machine, load_machine
from lib_dlhpc.spec.measured_machine import STAND_IN, default_machine, foreign, measured_on
from lib_dlhpc.spec.units import count
from lib_dlhpc.training.check import check


@dataclass(frozen=True)
class Placed:
    """The experiment that is predicted and simulated here, with notes on it."""

    experiment: Experiment
    notes: tuple[str, ...]
    cores: int

    @property
    def ranks(self) -> int:
        """MPI ranks of the run: devices, and servers where there are some."""
        return int(self.experiment.devices + self.experiment.servers)

    @property
    def calibration(self) -> str:
        """When and where this machine's numbers were measured, as text; "" if they were not."""
        return calibration_of(self.experiment.machine)

    @property
    def oversubscribed(self) -> bool:
        """Whether ranks share cores: their times are then meaningless for the method."""
        return self.ranks > self.cores


def placed(
    experiment: Experiment, ranks: int | None = None, machine: Machine | None = None
) -> Placed:
    """Return the experiment on `ranks` ranks of this machine (None: one for each device and server).

    The global batch stays the same and is split over the ranks, as in `dlhpc run -n`. machine: a measured one; None:
    the user's own calibration, or else the catalog's stand-in, with a note. Raises SpecError if the network is
    partitioned over another number of ranks.
    """
    check_given(experiment)
    notes = list[str]()
    wanted = int(experiment.devices + experiment.servers) if ranks is None else ranks
    many = wanted - int(experiment.servers)
    if many < 1:
        raise SpecError(f"ranks = {wanted}: expected at least {1 + int(experiment.servers)}.")
    _check_ranks(experiment, many)
    here, more = _machine(experiment, machine)
    notes += more
    batch = -(-int(experiment.global_batch) // (many // int(experiment.strategy.replica)))
    shares = many // int(experiment.strategy.replica)
    if batch * shares != int(experiment.global_batch):
        notes.append(
            f"a step has {batch * shares} samples instead of {int(experiment.global_batch)}:"
            f" {batch} on each of {count(shares, 'rank')}."
        )
    if experiment.storage.tier and experiment.storage.cache:
        notes.append(
            f"the input stall is predicted as a mean of run.epochs = {experiment.run.epochs:g}, of which the"
            " first finds nothing in the cache; the run here has fewer steps, and so fewer hits."
        )
    notes += run_only.notes(experiment)
    nodes = max(int(here.nodes), 1 + int(experiment.servers))
    devices = max(int(here.devices_per_node), many)
    own = replace(
        experiment,
        machine=replace(here, nodes=nodes, devices_per_node=devices),
        strategy=replace(
            experiment.strategy,
            nodes=1,
            devices_per_node=many,
            batch=batch,
            data=experiment.strategy.data if is_partitioned(experiment) else 0,
        ),
        calibration=Calibration(),
    )
    return Placed(own.set({}), tuple(notes), cores())


def check_here(here: Placed) -> None:
    """Raise SpecError for an experiment that cannot be trained, or exceeds the memory of this machine's ranks."""
    check(here.experiment)
    check_fits(here.experiment)


def check_many(here: Placed, most: int | None) -> None:
    """Raise SpecError for more than `most` ranks; None: no limit."""
    if most is not None and here.ranks > most:
        raise SpecError(
            f"{count(here.ranks, 'rank')} are too many for {count(here.cores, 'core')}: legal here: up"
            f" to {most}."
        )


def _check_ranks(experiment: Experiment, many: int) -> None:
    if is_partitioned(experiment) and many != int(experiment.devices):
        raise SpecError(
            f"{many} ranks: the network is partitioned over the {int(experiment.devices)} devices of"
            f" [strategy]; compare it on {int(experiment.devices)}."
        )


def _machine(experiment: Experiment, measured: Machine | None) -> tuple[Machine, Sequence[str]]:
    """Return this machine, and notes on the source of its numbers."""
    stand_in = experiment.machine.name == STAND_IN
    base = experiment.machine if stand_in else load_machine(STAND_IN)
    base = replace(base, storage={**base.storage, **experiment.machine.storage})
    measured = measured or default_machine()
    if measured is None:
        return base, [
            "this machine is not calibrated: predictions use the catalog's stand-in;"
            " `dlhpc calibrate` takes a minute."
        ]
    return measured_on(base, measured), [
        f"the calibration may not hold. {words}" for words in foreign(measured)
    ]


def why_not(experiment: Experiment, most: int | None = None) -> str:
    """Return why an experiment cannot run here, in a sentence; "" if it can.

    most: largest number of ranks; None: no limit. The trainer's own reasons come first, then memory.
    """
    try:
        check(experiment)
        here = placed(experiment)
        check_many(here, most)
        check_here(here)
    except SpecError as error:
        return str(error)
    return ""
