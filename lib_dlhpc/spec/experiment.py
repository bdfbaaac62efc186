"""Experiment: the complete description of a training run, in one frozen object and one TOML file."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.errors import FieldError, SpecError, reason_of
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.adapters import as_trained
from lib_dlhpc.spec.calibration import Calibration as Calibration
from lib_dlhpc.spec.calibration import after_change, moved
from lib_dlhpc.spec.consistency import check_consistency
from lib_dlhpc.spec.dataset import SIZES, Dataset, read_dataset, usual_dataset
from lib_dlhpc.spec.files import machine_named, parsed, text_of
from lib_dlhpc.spec.machine import DEFAULT_HOST_LINK, Machine, read_device, read_link, read_machine
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.networks import build, unnamed
from lib_dlhpc.spec.planning import Planning, read_planning
from lib_dlhpc.spec.run import Run
from lib_dlhpc.spec.schema import (
    SECTIONS,
    check_keys,
    check_value,
    difference,
    nearest_field,
    read_table,
    renamed,
    resolve,
    to_table,
)
from lib_dlhpc.spec.storage import Storage
from lib_dlhpc.spec.strategy import AUTO, Strategy
from lib_dlhpc.spec.tokens import TOKENS, cut_anew, over_tokens, parted
from lib_dlhpc.spec.training import Training
from lib_dlhpc.spec.usual import usual_strategy


@dataclass(frozen=True, init=False, repr=False)
class Experiment:
    """A training run: the input of predict, simulate and run.

        Experiment(model="resnet50", machine="summit", strategy={"nodes": 64, "batch": 32})

    Each section is an object, a table as in TOML, or a catalog name.
    """

    model: Model
    dataset: Dataset
    machine: Machine
    strategy: Strategy
    storage: Storage
    calibration: Calibration
    run: Run
    training: Training
    plan: Planning
    # One sentence for each measured value that a change dropped: printed with a prediction, not part of the file.
    warnings: tuple[str, ...] = dataclasses.field(compare=False)

    def __init__(
        self,
        model: "Model | str | Mapping[str, Any]",
        dataset: "Dataset | str | Mapping[str, Any] | None" = None,
        machine: "Machine | str | Mapping[str, Any] | None" = None,
        strategy: "Strategy | Mapping[str, Any] | None" = None,
        storage: "Storage | Mapping[str, Any] | None" = None,
        calibration: "Calibration | Mapping[str, Any] | None" = None,
        run: "Run | Mapping[str, Any] | None" = None,
        training: "Training | Mapping[str, Any] | None" = None,
        plan: "Planning | Mapping[str, Any] | None" = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        """Build from sections; the default `dataset` has samples of the model's shape. Raises SpecError."""
        values = (model, dataset, machine, strategy, storage, calibration, run, training, plan)
        given = dict[str, Any](zip(_NOUNS, values, strict=True))
        read = False
        given["run"], tokens, stated = parted(run, dataset)
        for section, value in given.items():
            if not isinstance(value, _NOUNS[section]):
                value, read = self._read(section, value), True
            object.__setattr__(self, section, value)
        object.__setattr__(self, "warnings", warnings)
        network = as_trained(self.model, self.fuses_attention, self.strategy)
        object.__setattr__(self, "model", network)
        if tokens is not None:
            for section, noun in over_tokens(self, tokens, stated).items():
                object.__setattr__(self, section, noun)
        if read:
            check_consistency(self)

    def __repr__(self) -> str:
        """Return the call that makes it: catalog names, and what differs from the defaults."""
        tables = to_tables(self).items()
        given = {key: each["name"] if each.keys() == {"name"} else each for key, each in tables}
        return "Experiment(" + ", ".join(f"{key}={each!r}" for key, each in given.items()) + ")"

    def _read(self, section: str, value: Any) -> Any:
        """Return a section from its catalog name or table, or its default."""
        if section == "dataset":
            shape = self.model.input_shape
            usual = usual_dataset(shape, self.model.reads_tokens) if value is None else value
            return read_dataset(usual, shape=shape)
        if section == "machine" and value is None:
            raise SpecError(f"machine is missing; legal: {', '.join(catalog.names('machines'))}.")
        if section in _READERS:
            return _READERS[section](value)
        return read_table(_NOUNS[section], {} if value is None else value, section)

    @property
    def calibrated_machine(self) -> Machine:
        """The machine with the measured link efficiency between nodes, if known."""
        link, share = self.machine.inter_node, self.calibration.link_efficiency
        if not np.any(share):
            return self.machine
        reached: Any = np.where(np.equal(share, 0), link.efficiency, share)
        link = dataclasses.replace(link, efficiency=reached[()])
        return dataclasses.replace(self.machine, inter_node=link)

    @property
    def devices_per_node(self) -> Any:
        """Devices used in each node."""
        used, every = self.strategy.devices_per_node, self.machine.devices_per_node
        if isinstance(used, int) and isinstance(every, int):  # asked for often
            return used or every
        return np.where(np.equal(used, 0), every, used)[()]

    @property
    def devices(self) -> Any:
        """Devices that train, over all nodes."""
        return self.strategy.nodes * self.devices_per_node

    @property
    def servers(self) -> Any:
        """Parameter servers: additional nodes, with one device each; 0 unless asynchronous."""
        return self.strategy.servers if self.strategy.update == "asynchronous" else 0

    @property
    def overlap(self) -> bool:
        """Whether communication overlaps with computation: requested, and the machine has asynchronous progress."""
        return self.strategy.overlap and self.machine.progress

    @property
    def overlaps(self) -> bool:
        """Whether gradient synchronization overlaps with backward: of synchronous updates, not compressed."""
        return self.strategy.overlaps and self.machine.progress and not self.compressed

    @property
    def compressed(self) -> bool:
        """Whether only the largest gradients, or factors of them, are exchanged."""
        return self.training.compresses

    @property
    def fuses_attention(self) -> bool:
        """Whether attention is fused: as the strategy says, or else as on the device; in a ring it always is."""
        if self.strategy.has_ring:
            return True
        wanted = self.strategy.fused_attention
        return self.machine.device.fused_attention if wanted == AUTO else wanted == "on"

    @property
    def global_batch(self) -> Any:
        """Samples of one optimizer step over all devices."""
        return self.strategy.batch * (self.devices // self.strategy.replica)

    def set(self, changes: Mapping[str, Any]) -> "Experiment":
        """Return a copy with dotted fields changed, such as {"strategy.nodes": 64}; values may be arrays.

        A measured number of [calibration] is dropped, with a warning, if a change invalidates it (model,
        machine, device, precision), unless [calibration] is set as well. Raises SpecError, which names the
        field, the fault and the legal values.
        """
        given, changes = changes, {key: each for key, each in changes.items() if key != TOKENS}
        by_section: dict[str, dict[str, Any]] = {}
        for key, value in changes.items():
            section, dot, rest = key.partition(".")
            if not dot or section not in SECTIONS:
                near = field_meant(key)
                hint = f" Did you mean {near!r}?" if near else ""
                legal = ", ".join(f"{name}." for name in SECTIONS)
                raise FieldError(f"{key}: unknown field.{hint} A field starts with {legal}")
            by_section.setdefault(section, {})[rest] = value
        nouns = {name: _changed(self, name, inner) for name, inner in by_section.items()}
        experiment = dataclasses.replace(self, **nouns)
        if not SIZES & (data := by_section.get("dataset", {})).keys():
            fitted = cut_anew(self, experiment, "name" in data)
            experiment = dataclasses.replace(experiment, dataset=fitted)
        if TOKENS in given:
            experiment = dataclasses.replace(
                experiment, **over_tokens(experiment, given[TOKENS], changes)
            )
        if "calibration" in by_section:
            experiment = dataclasses.replace(experiment, warnings=())
        else:
            experiment = after_change(self, experiment, changes)
        check_consistency(experiment)
        return experiment


_NOUNS: dict[str, Any] = {
    "model": Model,
    "dataset": Dataset,
    "machine": Machine,
    "strategy": Strategy,
    "storage": Storage,
    "calibration": Calibration,
    "run": Run,
    "training": Training,
    "plan": Planning,
}


def field_meant(word: str) -> str:
    """Return the field of an experiment that a word without its section may mean, or an empty string."""
    return nearest_field(word, _NOUNS)


def _changed(experiment: Experiment, section: str, changes: Mapping[str, Any]) -> Any:
    """Return one noun of the experiment with `changes` (dotted keys within it) applied."""
    noun = getattr(experiment, section)
    if section in _READERS:
        # A new name drops the overrides of the old entry, so it is applied before its sibling fields.
        table = {} if "name" in changes else _section_table(experiment, section)
        for key, value in sorted(changes.items(), key=_names_first):
            _place(table, key, value, section)
        return _READERS[section](table)
    fields = {item.name: item for item in dataclasses.fields(noun)}
    changes = renamed(changes, section)
    check_keys(changes, tuple(fields), section)
    values = {
        key: check_value(fields[key].metadata, value, f"{section}.{key}")
        for key, value in changes.items()
    }
    return dataclasses.replace(noun, **values)


def _names_first(change: tuple[str, Any]) -> tuple[int, bool]:
    *parents, last = change[0].split(".")
    return len(parents), last != "name"


def _place(table: dict[str, Any], key: str, value: Any, section: str) -> None:
    """Set the dotted `key` to `value`; a new catalog name drops the overrides of the old entry."""
    *parents, last = key.split(".")
    for parent in parents:
        inner = table.setdefault(parent, {})
        if isinstance(inner, str):
            inner = table[parent] = {"name": inner}
        if not isinstance(inner, dict):
            raise SpecError(f"{section}.{key}: {parent} is a value, not a table.")
        table = inner
    if last == "name":
        table.clear()
    table[last] = value


def read_experiment(tables: Mapping[str, Any]) -> Experiment:
    """Build an Experiment from nested tables as parsed from TOML; raises SpecError."""
    check_keys(tables, SECTIONS, "experiment")
    for section in ("model", "dataset", "machine"):
        if section not in tables:
            needed = "an experiment needs [model], [dataset] and [machine]."
            usual = " MODEL@MACHINE adds the usual data set." if section != "model" else ""
            raise SpecError(f"[{section}] is missing; {needed}{usual}")
    return Experiment(**tables)


def read_model(value: Any, path: str = "model") -> Model:
    """Build a Model from a catalog name or from a family and its options; raises SpecError."""
    table = resolve("models", value, path, ("family",))
    name = table.pop("name", "")
    family = table.pop("family", None)
    if not isinstance(family, str):
        raise SpecError(
            f"{path}.family: missing; name a model from the catalog or give a family and its options."
        )
    try:
        return build(family, table, name=name)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def loads(source: str) -> Experiment:
    """Return the experiment that a TOML text describes; raises SpecError, also on broken TOML."""
    return read_experiment(parsed(source))


def load(path: str | Path) -> Experiment:
    """Return the experiment in a TOML file, else the catalog's run of that name; raises SpecError.

    "resnet50@summit" or "model.toml@summit": a model on a machine (or its file), by default with the usual data set,
    optimizer and precision.
    """
    try:
        if on_machine := catalog.on_machine(path):
            model, machine = on_machine
            tables = parsed(text_of(model)) if Path(model).is_file() else {"model": model}
            there = {"machine": machine_named(machine)}
            found = moved(read_experiment({"dataset": None} | tables | there), tables)
            usual = usual_strategy(found.model, found.machine.device)
            return found if "strategy" in tables else found.set(usual)
        if Path(path).is_dir() or not Path(path).exists():
            return read_experiment(catalog.run(str(path), Path(path).is_dir()))
        return loads(text_of(path))
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:  # no permission, not UTF-8
        raise SpecError(f"{path}: cannot be read: {reason_of(error)}.") from None


_READERS: dict[str, Callable[[Any], Any]] = {
    "model": read_model,
    "dataset": read_dataset,
    "machine": read_machine,
    "plan": read_planning,
}


def _section_table(experiment: Experiment, section: str) -> dict[str, Any]:
    """Return one section as its TOML table: a catalog name with overrides, or the fields."""
    noun = getattr(experiment, section)
    if section == "model":
        return _against_catalog("models", _model_table(noun))
    if section == "dataset":
        return _against_catalog("datasets", to_table(noun))
    if section == "machine":
        return _against_catalog("machines", _machine_table(noun))
    defaults = type(noun)()
    return {
        key: value
        for key, value in to_table(noun).items()
        if isinstance(getattr(noun, key), np.ndarray)
        or getattr(noun, key) != getattr(defaults, key)
    }


def _model_table(model: Model) -> dict[str, Any]:
    name = "" if model.name == unnamed(model.family) else model.name
    return {"name": name, "family": model.family, **model.options}


def _machine_table(machine: Machine) -> dict[str, Any]:
    table = to_table(machine)
    table["device"] = _against_catalog("devices", table["device"])
    for key in ("intra_node", "inter_node", "host_link"):
        table[key] = _against_catalog("links", table[key])
    entry = table.get("name") in catalog.names("machines")
    if not entry and table["host_link"] == {"name": DEFAULT_HOST_LINK.name}:
        del table["host_link"]
    return table


def _against_catalog(kind: str, table: dict[str, Any]) -> dict[str, Any]:
    """Return `table` as a catalog name with overrides, or complete if it has no entry."""
    name = table.get("name", "")
    if name not in catalog.names(kind):
        return {key: value for key, value in table.items() if key != "name" or name}
    return {"name": name, **difference(table, _entry(kind, name))}


@cache
def _entry(kind: str, name: str) -> dict[str, Any]:
    """Return an entry of the catalog as a table."""
    if kind == "models":
        return _model_table(read_model(name))
    if kind == "machines":
        return _machine_table(read_machine(name))
    if kind == "links":
        return to_table(read_link(name, "link"))
    return to_table(read_dataset(name) if kind == "datasets" else read_device(name))


def to_tables(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment as the tables of its TOML: catalog names with overrides."""
    tables = {section: _section_table(experiment, section) for section in SECTIONS}
    return {section: table for section, table in tables.items() if table}


def dumps(experiment: Experiment) -> str:
    """Return the experiment as TOML text that parses to an equal experiment."""
    import tomli_w

    return tomli_w.dumps(to_tables(experiment))


def dump(experiment: Experiment, path: str | Path) -> None:
    """Write the experiment as TOML, atomically: under a temporary name first, then renamed."""
    from lib_dlhpc.lifetime.files import write_text

    write_text(Path(path), dumps(experiment))
