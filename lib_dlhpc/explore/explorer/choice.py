"""What is chosen on the page: a preset and the fields that differ from it. Everything else follows from that.

written(choice, pinned) and read(fields) turn choices into the fields of an address (blocks/address.py) and back.
"""

import json
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
from lib_dlhpc.spec.files import parsed
from lib_dlhpc.spec.machine import Link, Machine

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
            if last == "name":  # what was changed of the old entry of the catalog goes with it
                fields = {k: v for k, v in fields.items() if not k.startswith(f"{section}.")}
            fields[key] = value
        base = self.preset.experiment
        return replace(self, changes={k: v for k, v in fields.items() if not _is_in(base, k, v)})


def experiment_of(choice: Choice) -> Experiment:
    """Return the experiment that is chosen; raises SpecError."""
    plain = {key: value for key, value in choice.changes.items() if key not in TIMES}
    factors = {key: value for key, value in choice.changes.items() if key in TIMES}
    experiment = choice.preset.experiment
    if plain.get(MACHINE) == OWN:
        experiment = on_own(experiment, {k: v for k, v in plain.items() if k != MACHINE})
    elif plain:
        experiment = what_if(experiment, plain)
    if factors:
        experiment = alone(experiment)  # a rate of several devices holds the exchange of that day
    for key, factor in factors.items():
        if isinstance(factor, bool) or factor not in FACTORS:
            legal = ", ".join(f"{f:g}" for f in FACTORS)
            raise SpecError(f"{key} = {factor!r}: legal: {legal}.")
        experiment = TIMES[key](experiment, factor)
    return experiment


def _is_in(base: Experiment, key: str, value: Any) -> bool:
    """Whether an experiment has a value; a name, also where nothing of that entry was overridden."""
    if value_at(base, key) != value:
        return False
    section, _, last = key.rpartition(".")
    return last != "name" or value_at(base.set({key: value}), section) == value_at(base, section)


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
    machine = experiment.machine
    name = "inter_node" if int(machine.nodes) > 1 else "intra_node"
    link: Link = getattr(machine, name)
    faster: dict[str, Any] = {name: replace(link, bandwidth=link.bandwidth * factor)}
    return replace(experiment, machine=replace(machine, **faster))


def _latency(experiment: Experiment, factor: float) -> Experiment:
    machine = experiment.machine
    links = {"intra_node": machine.intra_node, "inter_node": machine.inter_node}
    slower: Any = {n: replace(each, latency=each.latency * factor) for n, each in links.items()}
    return replace(experiment, machine=replace(machine, **slower))


def _rate(experiment: Experiment, factor: float) -> Experiment:
    """Everything that a device does takes 1/factor of its time: products, memory traffic and launches."""
    device, measured = experiment.machine.device, experiment.calibration
    faster = replace(
        device,
        peak={name: rate * factor for name, rate in device.peak.items()},
        memory_bandwidth=device.memory_bandwidth * factor,
        launch=device.launch / factor,
        overhead=device.overhead / factor,
        dispatch=device.dispatch / factor,
        slowdown=device.slowdown / (factor if device.layers else 1),
    )
    machine: Machine = replace(experiment.machine, device=faster)
    calibration = replace(measured, rate=measured.rate * factor)
    return replace(experiment, machine=machine, calibration=calibration)


TIMES: dict[str, Callable[[Experiment, float], Experiment]] = {
    "times.bandwidth": _bandwidth,
    "times.latency": _latency,
    "times.rate": _rate,
}


def written(choice: Choice, pinned: Choice | None = None) -> dict[str, Any]:
    """Return choice and pinned choice as the fields of an address."""
    of_a = {f"{PINNED}{key}": value for key, value in _fields(pinned).items()} if pinned else {}
    return _fields(choice) | of_a


def _fields(choice: Choice) -> dict[str, Any]:
    if choice.preset.name:
        return {PRESET: choice.preset.name, **choice.changes}
    tables = to_tables(choice.preset.experiment)
    return {**{f"{FILE}{key}": value for key, value in tables.items()}, **choice.changes}


def read(fields: Mapping[str, Any]) -> tuple[Choice, Choice | None, tuple[str, ...]]:
    """Return what an address chooses and pins, and in words what of it was ignored; never raises."""
    others = _below(PINNED, fields)
    choice, ignored = _read({k: v for k, v in fields.items() if not k.startswith(PINNED)})
    pinned, more = _read(others) if others else (None, ())
    return choice, pinned, (*ignored, *more)


def experiment_in(text: str, here: Experiment) -> Experiment:
    """Return the experiment of a file; raises SpecError.

    A model alone, as `dlhpc import model` writes it or as a config.json of Hugging Face, comes on the nodes of `here`,
    with the usual data set and strategy.
    """
    if text.lstrip().startswith("{"):
        from lib_dlhpc.importing import import_model  # rarely needed

        try:
            model = import_model(json.loads(text)).model
        except (ValueError, RecursionError) as error:
            raise SpecError(f"The file cannot be read as a config.json: {error}") from None
        tables: dict[str, Any] = {"model": {"family": model.family, **model.options}}
    else:
        tables = parsed(text)
    if set(tables) != {"model"} or not isinstance(tables["model"], dict):
        return read_experiment(tables)
    there = to_tables(here)["machine"]
    return read_experiment(
        {**tables, "dataset": None, "machine": there, "strategy": {"nodes": here.strategy.nodes}}
    )


def _below(prefix: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {k.removeprefix(prefix): v for k, v in fields.items() if k.startswith(prefix)}


def _read(fields: Mapping[str, Any]) -> tuple[Choice, tuple[str, ...]]:
    ignored: list[str] = []
    start = preset(FIRST)
    try:
        if tables := _below(FILE, fields):
            own = of_file(read_experiment(tables))
            predict(own.experiment)
            start = own
        elif PRESET in fields:
            start = preset(fields[PRESET])
    except (SpecError, TypeError, ValueError, AttributeError) as error:
        ignored.append(str(error)[:LONGEST])
    asked = {k: v for k, v in fields.items() if k != PRESET and not k.startswith(FILE)}
    wanted = {
        key: value
        for key, value in asked.items()
        if isinstance(value, str | int | float) and len(str(value)) <= LONGEST
    }
    ignored += [key[:LONGEST] for key in asked if key not in wanted]
    # A preset is legal, and a file's experiment was predicted above: without changes there is nothing to try.
    choice, problem = _tried(Choice(start), wanted) if wanted else (Choice(start), "")
    if problem:  # field by field: only what is wrong is left out
        for key, value in wanted.items():
            choice, problem = _tried(choice, {key: value})
            named = "" if problem.startswith(key) else f"{key[:60]}: "
            ignored += [f"{named}{problem[:LONGEST]}"] if problem else []
    return choice, tuple(ignored)


def _tried(choice: Choice, changes: Mapping[str, Any]) -> tuple[Choice, str]:
    """Return the choice with changes; or as it is, and why."""
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
        self._choices, self._place = [first], 0
        self._clock, self._moved, self._when = clock, frozenset[str](), float("-inf")
        self._start = first

    @property
    def now(self) -> Choice:
        """What is chosen now."""
        return self._choices[self._place]

    def before(self, fields: Iterable[str]) -> Choice:
        """Return what was chosen before the moves of these fields, if they were the last; else what is chosen now."""
        return self._start if frozenset(fields) == self._moved else self.now

    def choose(self, choice: Choice, moved: Iterable[str] = ()) -> None:
        """Go on to another choice; quick moves of the same fields are one step back."""
        fields, when = frozenset(moved), self._clock()
        self._start = self.before(fields)
        drag = bool(fields) and fields == self._moved and when - self._when < QUICK
        past = self._choices[: self._place + (not drag and choice != self.now)]
        self._choices = [*past[-MOST:], choice]
        self._place = len(self._choices) - 1
        self._moved, self._when = fields, when

    def undo(self) -> Choice:
        """Return to the choice before, if there is one."""
        return self._go(-1 if self.back else 0)

    def redo(self) -> Choice:
        """Return to what was undone last, if there is something."""
        return self._go(1 if self.ahead else 0)

    def _go(self, by: int) -> Choice:
        self._place += by
        self._moved = frozenset()
        return self.now

    @property
    def back(self) -> bool:
        """Whether there is something to undo."""
        return self._place > 0

    @property
    def ahead(self) -> bool:
        """Whether there is something to redo."""
        return self._place < len(self._choices) - 1
