"""The explorer on a machine that was measured: its name in the list of machines, and the bands of its predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.spec import measured_machine
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine

if TYPE_CHECKING:
    from lib_dlhpc.calibration.machine import Calibrated

OWN, OTHER = "measured here", "measured elsewhere"  # values of the list of machines


@dataclass(frozen=True)
class Known:
    """(low, high) s that a step and its terms may take, by name, the whole as "one step"; and notes on that."""

    bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def own_machine() -> Machine | None:
    """Return the user's own calibration as it is on the disk now; None where there is none, or a broken one."""
    path = measured_machine.default_path()
    try:
        return _own(str(path), path.stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=1)
def _own(path: str, changed: int) -> Machine | None:
    try:
        return measured_machine.load_measured(path)
    except SpecError:
        return None


def learn(found: "Calibrated") -> None:
    """Store a calibration as the user's own, as `dlhpc calibrate` does. Raises SpecError where it cannot be stored."""
    from lib_dlhpc.calibration.machine_report import as_toml
    from lib_dlhpc.lifetime.files import write_text

    out = measured_machine.default_path()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, as_toml(found))
    except OSError as error:
        raise SpecError(f"{out}: {error.strerror}.") from None


def on_own(experiment: Experiment, changes: Mapping[str, object]) -> Experiment:
    """Return the experiment on the user's own machine, and with `changes`. Raises SpecError where there is none."""
    own = own_machine()
    if own is None:
        words = "This machine is not calibrated; open Run here and press Calibrate."
        raise SpecError(words)
    there = what_if(experiment, {**changes, "machine.name": measured_machine.STAND_IN})
    return replace(there, machine=measured_machine.measured_on(there.machine, own))


def titles(machine: Machine) -> list[tuple[str, str]]:
    """Return the entries of the list of machines for measured ones: the user's own, and the present if another."""
    own, found = own_machine(), []
    if own is not None and own.measured is not None:
        found.append((f"This machine, calibrated {own.measured.date}", OWN))
    if chosen(machine) == OTHER and machine.measured is not None:
        found.append((f"From your file, calibrated {machine.measured.date}", OTHER))
    return found


def chosen(machine: Machine) -> str:
    """Return the value of the list of machines for this one: its name, unless it was measured."""
    if machine.measured is None:
        return machine.name
    own = own_machine()
    return OWN if own is not None and own.measured == machine.measured else OTHER


def known_of(prediction: Breakdown) -> Known:
    """Return the bands of a prediction where its machine was measured, and where they come from."""
    machine = prediction.experiment.machine
    if machine.measured is None:
        return Known()
    from lib_dlhpc.prediction.measured.bands import bands, calibration_of

    stale = measured_machine.foreign(machine) if chosen(machine) == OWN else []
    notes = [f"The calibration may not hold. {words}" for words in stale]
    try:
        found = bands(prediction.experiment)
    except SpecError as error:
        return Known(notes=(f"No bands: {error}", *notes))
    words = f"90% bands: by the intervals of the machine's numbers, {calibration_of(machine)}."
    return Known(found, tuple([words, *notes] if found else notes))
