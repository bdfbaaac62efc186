"""What is chosen on the page: a preset and the fields that differ from it. Everything else follows from that.

experiment_of(choice)     the experiment
written(choice, pinned)   both as the fields of an address (blocks/address.py)
read(fields)              the choices that an address asks for, and what of it was ignored
History                   choices, with undo and redo
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.explorer.measured import OWN, on_own
from lib_dlhpc.explore.explorer.presets import FIRST, Preset, of_file, preset
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.what_if import alone, what_if
from lib_dlhpc.spec.experiment import Experiment, read_experiment, to_tables
from lib_dlhpc.spec.machine import Device, Link

PRESET, PINNED, FILE = "preset", "A.", "file."
MACHINE = "machine.name"
FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
QUICK = 1.0  # s between two changes of one field that are undone together
MOST = 200  # steps back
LONGEST = 200  # characters of a value in an address


@dataclass(frozen=True)
class Choice:
    """A preset and the dotted fields that differ from it; `times.` fields are factors, see TIMES."""

    preset: Preset
    changes: Mapping[str, Any] = field(default_factory=dict)

    def with_changes(self, changes: Mapping[str, Any]) -> "Choice":
        """Return the choice with more fields changed; those that are as in the preset again are left out."""
        fields = dict(self.changes)
        for key, value in changes.items():
            section, _, last = key.rpartition(".")
            if (
                last == "name"
            ):  # another entry of the catalog: what was changed of the old one goes with it
                fields = {k: v for k, v in fields.items() if not k.startswith(f"{section}.")}
            fields[key] = value
        base = self.preset.experiment
        return replace(self, changes={k: v for k, v in fields.items() if not _is_in(base, k, v)})


def experiment_of(choice: Choice) -> Experiment:
    """Return the experiment that is chosen; raises SpecError."""
    plain = {key: value for key, value in choice.changes.items() if key not in TIMES}
    base = choice.preset.experiment
    if plain.get(MACHINE) == OWN:
        experiment = on_own(base, {key: value for key, value in plain.items() if key != MACHINE})
    else:
        experiment = what_if(base, plain) if plain else base
    if choice.changes.keys() & TIMES.keys():
        experiment = alone(experiment)  # a rate of several devices holds the exchange of that day
    for key, factor in choice.changes.items():
        if key in TIMES:
            if (
                isinstance(factor, bool)
                or not isinstance(factor, int | float)
                or factor not in FACTORS
            ):
                raise SpecError(
                    f"{key} = {factor!r}: legal: {', '.join(f'{f:g}' for f in FACTORS)}."
                )
            experiment = TIMES[key](experiment, factor)
    return experiment


def _is_in(base: Experiment, key: str, value: Any) -> bool:
    """Whether an experiment has a value; a name, also where nothing of that entry was overridden."""
    if value_at(base, key) != value:
        return False
    section, _, last = key.rpartition(".")
    return last != "name" or getattr(base.set({key: value}), section, None) == getattr(
        base, section, None
    )


def value_at(experiment: Experiment, key: str) -> Any:
    """Return what an experiment has at a dotted field; 1 for a factor, None where there is nothing."""
    if key in TIMES:
        return 1
    found: Any = experiment
    for part in key.split("."):
        if found is experiment.model and part != "name":
            found = found.options
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
    return found


def _bandwidth(experiment: Experiment, factor: float) -> Experiment:
    def faster(link: Link) -> Link:
        return replace(link, bandwidth=link.bandwidth * factor)

    machine = experiment.machine
    if int(machine.nodes) > 1:
        return replace(experiment, machine=replace(machine, inter_node=faster(machine.inter_node)))
    return replace(experiment, machine=replace(machine, intra_node=faster(machine.intra_node)))


def _latency(experiment: Experiment, factor: float) -> Experiment:
    def slower(link: Link) -> Link:
        return replace(link, latency=link.latency * factor)

    machine = experiment.machine
    inside, between = slower(machine.intra_node), slower(machine.inter_node)
    return replace(experiment, machine=replace(machine, intra_node=inside, inter_node=between))


def _rate(experiment: Experiment, factor: float) -> Experiment:
    """Everything that a device does takes 1/factor of its time: products, memory traffic and launches."""
    device, measured = experiment.machine.device, experiment.calibration
    faster: Device = replace(
        device,
        peak={name: rate * factor for name, rate in device.peak.items()},
        memory_bandwidth=device.memory_bandwidth * factor,
        launch=device.launch / factor,
        overhead=device.overhead / factor,
        slowdown=device.slowdown / (factor if device.layers else 1),
    )
    machine = replace(experiment.machine, device=faster)
    return replace(
        experiment, machine=machine, calibration=replace(measured, rate=measured.rate * factor)
    )


TIMES: dict[str, Callable[[Experiment, float], Experiment]] = {
    "times.bandwidth": _bandwidth,
    "times.latency": _latency,
    "times.rate": _rate,
}


def written(choice: Choice, pinned: Choice | None = None) -> dict[str, Any]:
    """Return choice and pinned choice as the fields of an address."""
    fields = _fields(choice)
    if pinned is not None:
        fields |= {f"{PINNED}{key}": value for key, value in _fields(pinned).items()}
    return fields


def _fields(choice: Choice) -> dict[str, Any]:
    if choice.preset.name:
        start: dict[str, Any] = {PRESET: choice.preset.name}
    else:
        start = {
            f"{FILE}{key}": value for key, value in to_tables(choice.preset.experiment).items()
        }
    return start | dict(choice.changes)


def read(fields: Mapping[str, Any]) -> tuple[Choice, Choice | None, tuple[str, ...]]:
    """Return what an address chooses and pins, and in words what of it was ignored; never raises."""
    ours = {key: value for key, value in fields.items() if not key.startswith(PINNED)}
    others = {key.removeprefix(PINNED): v for key, v in fields.items() if key.startswith(PINNED)}
    choice, ignored = _read(ours)
    if not others:
        return choice, None, ignored
    pinned, more = _read(others)
    return choice, pinned, (*ignored, *more)


def _read(fields: Mapping[str, Any]) -> tuple[Choice, tuple[str, ...]]:
    ignored: list[str] = []
    start = preset(FIRST)
    try:
        tables = {k.removeprefix(FILE): v for k, v in fields.items() if k.startswith(FILE)}
        if tables:
            start = of_file(read_experiment(tables))
            predict(start.experiment)
        elif PRESET in fields:
            start = preset(fields[PRESET])
    except (SpecError, TypeError, ValueError, AttributeError) as error:
        ignored.append(str(error)[:LONGEST])
        start = preset(FIRST)
    wanted = {}
    for key, value in fields.items():
        if key == PRESET or key.startswith(FILE):
            continue
        if isinstance(value, str | int | float) and len(str(value)) <= LONGEST:
            wanted[key] = value
        else:
            ignored.append(key[:LONGEST])
    choice, problem = _tried(Choice(start), wanted)
    if not problem:
        return choice, tuple(ignored)
    choice = Choice(start)  # field by field: only what is wrong is left out
    for key, value in wanted.items():
        further, problem = _tried(choice, {key: value})
        choice = choice if problem else further
        ignored += [f"{key[:60]}: {problem[:LONGEST]}"] if problem else []
    return choice, tuple(ignored)


def _tried(choice: Choice, changes: Mapping[str, Any]) -> tuple[Choice, str]:
    further = choice.with_changes(changes)
    try:
        predict(experiment_of(further))
    except SpecError as error:
        return choice, str(error) or "not legal"
    except (TypeError, ValueError, AttributeError, KeyError, ArithmeticError):
        return choice, "not legal"
    return further, ""


class History:
    """Choices in the order in which they were made; `now` is the newest that was not undone."""

    def __init__(self, first: Choice, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = first
        self._past: list[Choice] = []
        self._future: list[Choice] = []
        self._clock, self._moved, self._when = clock, frozenset[str](), float("-inf")

    def choose(self, choice: Choice, moved: Iterable[str] = ()) -> None:
        """Go on to another choice; quick moves of the same fields are one step back."""
        fields, when = frozenset(moved), self._clock()
        drag = bool(fields) and fields == self._moved and when - self._when < QUICK
        if not drag and choice != self.now:
            self._past = [*self._past[-MOST:], self.now]
        self.now, self._future = choice, []
        self._moved, self._when = fields, when

    def undo(self) -> Choice:
        """Return to the choice before, if there is one."""
        if self._past:
            self._future.append(self.now)
            self.now = self._past.pop()
        self._moved = frozenset()
        return self.now

    def redo(self) -> Choice:
        """Return to what was undone last, if there is something."""
        if self._future:
            self._past.append(self.now)
            self.now = self._future.pop()
        self._moved = frozenset()
        return self.now

    @property
    def back(self) -> bool:
        """Whether there is something to undo."""
        return bool(self._past)

    @property
    def ahead(self) -> bool:
        """Whether there is something to redo."""
        return bool(self._future)
