"""The experiment of a command on a measured machine, if one is named, with uncertainty bands."""

import argparse
from collections.abc import Mapping
from dataclasses import field, replace

from lib_dlhpc.commands.experiment import change, read, warned
from lib_dlhpc.errors import SpecError
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec import catalog, run_only
from lib_dlhpc.spec.calibration import without
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.measured_machine import default_machine, foreign, load_measured, measured_on

OWN = "own"
MOST_TOKENS = 15_360 * 4_096  # of a step of DeepSeek-V3 (arXiv 2412.19437, section 4.2)


def add_machine(command: argparse.ArgumentParser, banded: bool = True) -> None:
    """Add the argument for a measured machine. banded: the command prints uncertainty bands."""
    bands = ", and print uncertainty bands" * banded
    command.add_argument(
        "--machine",
        metavar="FILE",
        help=f"use the numbers of `dlhpc calibrate --out FILE` or `dlhpc import machine`{bands};"
        f" {OWN!r}: those of your own calibration",
    )


@dataclass(frozen=True)
class Known:
    """Uncertainty of predictions for a measured machine: s by name, the whole step as "one step"."""

    bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    calibration: str = ""  # source of the numbers
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """A line with the source of the bands, and the notes."""
        line = f"  90% bands: from the intervals of the machine's numbers, {self.calibration}"
        return [line] * bool(self.bands) + [f"  NOTE  {note}" for note in self.notes]

    def carried(
        self, predicted: Mapping[str, float], own: Mapping[str, float]
    ) -> Mapping[str, tuple[float, float]]:
        """Return the bands of a simulated or measured step, from its terms and the predicted ones."""
        if not self.bands:
            return {}
        from lib_dlhpc.prediction.measured.bands import ALL, carried

        whole = [{ALL: sum(terms.values()), **terms} for terms in (predicted, own)]
        return carried(self.bands, *whole)


def read_on_machine(options: argparse.Namespace) -> tuple[Experiment, list[str]]:
    """Return the experiment on the machine of --machine, with --set applied, and notes. Raises SpecError.

    --set applies after --machine, which would override it.
    """
    measured, notes = _measured(options.machine)
    if measured is None:
        experiment = read(options.experiment, options.set)
        notes = [*notes, *_defaults(options, experiment)]
        return experiment, [*notes, *run_only.warnings(experiment)]
    from lib_dlhpc.prediction.what_if import what_if

    experiment = read(options.experiment, [])
    # [calibration] was measured on the machine that the file names.
    named = experiment.machine.name or "the machine of the file"
    experiment = without(experiment, f"it was measured on {named}, not on that of --machine")
    there = measured_on(experiment.machine, measured)
    experiment = replace(experiment, machine=there)
    experiment = warned(what_if(experiment, dict(map(change, options.set))))
    return experiment, [*notes, *run_only.warnings(experiment)]


def _defaults(options: argparse.Namespace, experiment: Experiment) -> list[str]:
    """Return a note where the default batch of "model@machine" is one with which nobody trains a language model."""
    chosen = {text.partition("=")[0].strip() for text in options.set}
    if not catalog.on_machine(options.experiment) or chosen & {"strategy.batch", "plan.batch"}:
        return []
    model, samples = experiment.model, experiment.strategy.batch
    tokens = experiment.devices * samples * model.input_shape[0] if model.reads_tokens else 0
    if tokens <= MOST_TOKENS:
        return []
    return [
        f"{samples} samples per device, the default, make {tokens / 1e6:,.0f} million tokens a step; published runs"
        " take 4 to 63 million (Llama, DeepSeek-V3): --set strategy.batch=..."
    ]


def known_of(experiment: Experiment, notes: list[str]) -> Known:
    """Return the bands of a prediction; empty for a machine that was not measured."""
    if experiment.machine.measured is None:
        return Known(notes=tuple(notes))
    from lib_dlhpc.prediction.measured.bands import bands, calibration_of

    try:
        return Known(bands(experiment), calibration_of(experiment.machine), tuple(notes))
    except SpecError as error:
        return Known(notes=(*notes, f"no bands: {error}"))


def _measured(name: str | None) -> tuple[Machine | None, list[str]]:
    if name != OWN:
        return (None if name is None else load_measured(name)), []
    machine = default_machine()
    if machine is None:
        raise SpecError(
            f"--machine {OWN}: you have no calibration; `dlhpc calibrate` takes a minute."
        )
    return machine, [f"the calibration may not hold. {words}" for words in foreign(machine)]
