"""What is behind a number: its formula, its inputs, and where each of these comes from."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lib_dlhpc.costs import low_precision
from lib_dlhpc.costs.wire_format import (
    BYTES,
    adds_wide,
    cast_time,
    is_cast,
    is_scaled,
    search_time,
    wire_format,
)
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.machine import field_of, load_machine, read_device, read_link
from lib_dlhpc.spec.strategy import FORMATS
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown


@dataclass(frozen=True)
class Explanation:
    """One number with what is behind it, all as text."""

    name: str
    value: str
    formula: str
    inputs: tuple[tuple[str, str, str], ...]  # name, value, source and confidence
    source: str
    assumes: str


def source_of(prediction: "Breakdown", owner: str, key: str) -> str:
    """Return where a number of the machine comes from: a calibration, the catalog, or "given" if it was changed."""
    experiment, machine = prediction.experiment, prediction.experiment.machine
    if (owner, key) == ("inter_node", "efficiency") and experiment.calibration.link_efficiency:
        return "[calibration] of the experiment"
    name = key if owner == "machine" else f"{owner}.{key}"
    if machine.measured is not None and name in machine.measured.intervals:
        unit = field_of(name)["unit"]
        low, high = (show(end, unit) for end in machine.measured.intervals[name])
        if machine.measured.complete:
            return f"imported on {machine.measured.date}; {low} to {high} with 90%"
        return f"measured on {machine.measured.date}; {low} to {high} with 90% (calibration)"
    noun: Any = machine if owner == "machine" else getattr(machine, owner)
    kind = {"machine": "machines", "device": "devices"}.get(owner, "links")
    found: dict[str, str] = {}
    if machine.name in catalog.names("machines"):
        entry = catalog.read("machines", machine.name)
        base: Any = load_machine(machine.name)
        part = base if owner == "machine" else getattr(base, owner)
        own = owner == "machine" or (isinstance(entry[owner], dict) and key in entry[owner])
        if own and part.name == noun.name and _at(part, key) == _at(noun, key):
            found = catalog.source_of(entry, key if owner == "machine" else f"{owner}.{key}")
    if not found and owner != "machine" and noun.name in catalog.names(kind):
        part = read_device(noun.name) if kind == "devices" else read_link(noun.name, owner)
        if _at(part, key) == _at(noun, key):
            found = catalog.source_of(catalog.read(kind, noun.name), key)
    return f"{found['from']} ({found['confidence']})" if found else "given"


def _at(noun: Any, key: str) -> Any:
    """Return the number at the dotted `key`, None if there is none."""
    for part in key.split("."):
        noun = noun.get(part) if isinstance(noun, Mapping) else getattr(noun, part, None)
    return noun


def link_inputs(p: "Breakdown", owner: str, where: str) -> list[tuple[str, str, str]]:
    """Return latency, line rate and reached share of a link as inputs of an Explanation."""
    link = getattr(p.experiment.calibrated_machine, owner)
    return [
        (f"latency α {where}", show(link.latency, "s"), source_of(p, owner, "latency")),
        (f"line rate {where}", show(link.bandwidth, "B/s"), source_of(p, owner, "bandwidth")),
        (
            f"share of it reached {where}",
            f"{link.efficiency:.0%}",
            source_of(p, owner, "efficiency"),
        ),
    ]


def links_inputs(p: "Breakdown") -> list[tuple[str, str, str]]:
    """Return the same for each link of a run's devices: inside a node, or a domain of nodes, and between these."""
    from lib_dlhpc.costs.groups import near

    e = p.experiment
    joint = min(int(e.machine.domain), int(e.strategy.nodes))
    one, several = ("node", "nodes") if joint == 1 else (f"domain of {joint} nodes", "domains")
    found = link_inputs(p, "intra_node", f"inside a {one}") if near(e) > 1 else []
    if int(e.strategy.nodes) > joint:
        found += link_inputs(p, "inter_node", f"between {several}")
    return found


def wire_inputs(p: "Breakdown") -> list[tuple[str, str, str]]:
    """Return the format in which gradients are exchanged, if it is not that in memory, and the rate of casts."""
    e = p.experiment
    if not is_cast(e.strategy):
        return []
    size, name = BYTES[wire_format(e.strategy)], wire_format(e.strategy)
    found = [("on the wire", f"{name}, {size} B per gradient", "strategy.wire")]
    if adds_wide(e.strategy):
        return [*found, ("casts", "none", "microbatches add gradients in the format of the wire")]
    ways, passes = ("casts, there and back", 2) if not e.strategy.zero else ("cast", 1)
    rate = 1 / float(passes * cast_time(e, 1.0) + search_time(e, 1.0))
    scale = ("scale of a bucket", "its largest magnitude", "an allreduce of 4 B before each")
    return [
        *found,
        (ways, show(rate, "B/s"), "memory bandwidth; gradients in memory"),
        *[scale] * is_scaled(e.strategy),
    ]


def stored_narrow(p: "Breakdown") -> str:
    """Return a sentence on what is stored in a narrow format; "" where nothing is."""
    if not low_precision.is_used(p.experiment.model):
        return ""
    asked = FORMATS[p.experiment.strategy.precision]
    return (
        f" Inputs of linear layers are stored in {asked} for backward; no copy of the weights in {asked} is kept, and"
        f" the {asked} weights of one layer at a time are not counted."
    )
