"""Machine: devices, the links inside a node, the network between nodes, and storage."""

import math
import pickle
from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache, lru_cache
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.layer_rate import LayerRate, read_layer_rates
from lib_dlhpc.spec.measured import Measured, read_measured
from lib_dlhpc.spec.schema import (
    check_keys,
    choice,
    flag,
    number,
    read_table,
    required,
    resolve,
    text,
    whole,
)
from lib_dlhpc.spec.units import format_quantity, parse_quantity

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "nvfp4", "mxfp4")
TOPOLOGIES = ("single-switch", "fat-tree", "torus", "dragonfly", "rails", "rails-pxn")
# a leaf switch joins NICs of one index; PXN: NVLink first where the index changes
RAILS = ("rails", "rails-pxn")
# Which switches add what passes them (in-network reduction): in a node (NVLS), between nodes (SHARP).
IN_NETWORK = {
    "none": frozenset[str](),
    "nvls": frozenset({"nvls"}),
    "sharp": frozenset({"sharp"}),
    "both": frozenset({"nvls", "sharp"}),
}
# Allreduces in such switches (schedules/in_network.py), and what the switches must add for each.
IN_SWITCHES = {
    "nvls": IN_NETWORK["nvls"],
    "sharp": IN_NETWORK["sharp"],
    "nvls_sharp": IN_NETWORK["both"],
}
SCOPES = ("shared", "node")
SERVERS = ("apart", "one")


@dataclass(frozen=True)
class Device:
    """A processor: one GPU, one TPU chip, one CPU socket or core.

    A measured rate in `layers`, by kind of layer or by optimizer for its update, replaces the roofline.
    overhead: time of each pass of a batch, or microbatch, outside the layers.
    dispatch: time in which the host issues one kernel, or one collective; 0: it is always ahead of the device.
    list_copy: time in which the host copies one tensor of one rank out of, or into, the buffer of a collective that
    takes lists, as those of DeepSpeed's ZeRO 3 of 2021 did; for ZeRO 3 layer by layer. 0: no such lists.
    exchange_call: time that a call of an exchange of experts by node takes beyond its messages; 0: none.
    multiprocessors: work on the tiles of a matrix product, a wave at a time; 0: products of any shape fill them.
    fp8_efficiency: as efficiency, of products in fp8; 0: the same.
    streaming: share of the memory bandwidth that kernels reach which only move data; 0: all of it.
    attention: share of the peak that fused attention reaches, in the blocks of scores that a causal mask leaves; 0: as
    other products, in all blocks.
    slowdown: actual compute time over the time that these parameters predict.
    fused_attention: whether attention is fused here by default; in the catalog from the H100 on, as the published
    rows of earlier devices are from before it.
    unfused_loss: whether frameworks compute the loss of a language model in kernels of its own here, whose traffic is
    then priced (costs/cross_entropy.py); elsewhere it adds no time.
    """

    peak: Mapping[str, float]  # FLOP/s by precision; fp16 and bf16 are the matrix-unit rates
    memory: float = number("B", positive=True)
    memory_bandwidth: float = number("B/s", positive=True)
    idle_power: float = number("W")
    busy_power: float = number("W")
    name: str = text()
    reserved_memory: float = number("B", default=0.0)
    efficiency: float = number(default=1.0, positive=True, most=1.0)
    fp8_efficiency: float = number(default=0.0, most=1.0, divides=True)
    half_work: float = number("FLOP", default=0.0)
    launch: float = number("s", default=0.0)
    overhead: float = number("s", default=0.0)
    dispatch: float = number("s", default=0.0)
    list_copy: float = number("s", default=0.0)
    exchange_call: float = number("s", default=0.0)
    multiprocessors: int = whole(default=0, least=0)
    streaming: float = number(default=0.0, most=1.0, divides=True)
    attention: float = number(default=0.0, most=1.0, divides=True)
    slowdown: float = number(default=1.0, positive=True)
    fused_attention: bool = flag(default=False)
    unfused_loss: bool = flag(default=False)
    layers: Mapping[str, LayerRate] = field(default_factory=dict)


@dataclass(frozen=True)
class Link:
    """One connection: alpha is `latency`, beta is 1 / (bandwidth * efficiency), in one direction."""

    latency: float = number("s", most=60.0)
    bandwidth: float = number("B/s", positive=True)
    name: str = text()
    efficiency: float = number(default=1.0, positive=True, most=1.0)


DEFAULT_HOST_LINK = Link(8e-6, 15.75e9, "pcie3", 0.76)


@dataclass(frozen=True)
class StorageTier:
    """Storage for samples and checkpoints; rates are of the whole system if shared, else of one node.

    A single reader takes operations * operation_latency + reads * read_latency + bytes / reader_bandwidth
    for a file. All readers combined get at most metadata_rate, and take at least reads / read_rate
    + bytes / bandwidth of the data servers. servers: "apart", metadata and data have separate servers, and
    the slower limits; "one", the same disk and kernel serve both, and the times add.
    """

    bandwidth: float = number("B/s", positive=True, infinite=True)
    scope: str = choice(SCOPES, default="shared")
    write_bandwidth: float = number("B/s", default=math.inf, positive=True)
    metadata_rate: float = number("op/s", default=math.inf, positive=True)
    capacity: float = number("B", default=math.inf, positive=True)
    name: str = text()
    operation_latency: float = number("s", default=0.0)  # latency of a stat, open or close
    read_latency: float = number("s", default=0.0)  # time to the first byte of a read
    reader_bandwidth: float = number("B/s", default=math.inf, positive=True)  # a single reader
    # Rate of the read() calls of all readers together.
    read_rate: float = number("op/s", default=math.inf, positive=True)
    servers: str = choice(SERVERS, default="apart")
    power: float = number("W", default=0.0)  # of the whole system if shared, else of one node


@dataclass(frozen=True)
class Machine:
    """Nodes of identical devices, each connected to a network by `nics` links.

    topology: of the network between nodes (costs/network.py); nodes_per_switch is the nodes of a leaf switch, or of a
    group of a dragonfly, and oversubscription what they can send over what leaves it. Elsewhere the NICs of a node are
    used together; with "rails" each belongs to some of its devices, and NIC i of nodes_per_switch nodes hangs on a leaf
    of rail i. domain: nodes that intra_node joins to one domain, as if their devices were in one (NVLink over several
    trays). host_memory: of a node, in
    addition to device memory. host_link: between host and device, one per device. carbon_intensity: the mean of the
    grid over a year, as generated, whatever contract the site has. in_network: which switches add what passes them:
    those inside nodes ("nvls"), those between ("sharp"), "both". progress: asynchronous progress, whether
    communication advances while devices compute.
    """

    device: Device
    intra_node: Link
    inter_node: Link
    nodes: int = whole(default=1)
    devices_per_node: int = whole(default=1)
    domain: int = whole(default=1)
    nics: int = whole(default=1)
    topology: str = choice(TOPOLOGIES, default="single-switch")
    nodes_per_switch: int = whole(default=1)
    oversubscription: float = number(default=1.0, least=1.0)
    in_network: str = choice(tuple(IN_NETWORK), default="none")
    # Standard deviation over mean of a device's step time.
    jitter: float = number(default=0.0, most=1.0)
    node_power: float = number("W", default=0.0)
    pue: float = number(default=1.0, least=1.0)
    switch_power: float = number("W", default=0.0)  # of a node's part of all switches
    carbon_intensity: float = number("g/kWh", default=0.0)  # CO2 equivalents; 0: not known
    electricity_price: float = number(default=0.0)  # of a kWh, in `currency`
    device_price: float = number(default=0.0)  # of a device-hour, in `currency`
    currency: str = text(default="USD")
    storage: Mapping[str, StorageTier] = field(default_factory=dict)
    host_memory: float = number("B", default=math.inf, positive=True)
    host_link: Link = field(default_factory=lambda: DEFAULT_HOST_LINK)
    node_mtbf: float = number("s", default=math.inf, positive=True)  # mean time between failures
    restart_time: float = number("s", default=0.0)  # from a failure until the state is readable
    # mean time of repair of a failed node, whose place a node takes that the run does not use; 0: one always can
    repair_time: float = number("s", default=0.0)
    # Fraction of failures after which the node-local tiers are intact.
    local_survival: float = number(default=0.0, most=1.0)
    progress: bool = flag(default=True)
    name: str = text()
    measured: Measured | None = None  # provenance, if `dlhpc calibrate` measured the numbers


def read_device(value: Any, path: str = "device") -> Device:
    """Build a Device from a catalog name or a table; raises SpecError."""
    table = resolve("devices", value, path, required(Device))
    peak = table.get("peak")
    if not isinstance(peak, Mapping) or not peak:
        raise SpecError(
            f'{path}.peak = {peak!r}: expected a table such as {{ fp32 = "10.6 TFLOP/s" }}.'
        )
    check_keys(peak, PRECISIONS, f"{path}.peak")
    rates = {
        key: parse_quantity(rate, "FLOP/s", f"{path}.peak.{key}") for key, rate in peak.items()
    }
    for key, rate in rates.items():
        if not 0 < rate < math.inf:
            raise SpecError(f"{path}.peak.{key} = {rate:g}: legal: a finite rate above 0.")
    layers = read_layer_rates(table.get("layers", {}), f"{path}.layers")
    device: Device = read_table(Device, table, path, given={"peak": rates, "layers": layers})
    if np.any(np.less(device.busy_power, device.idle_power)):
        raise SpecError(
            f"{path}.busy_power = {np.min(device.busy_power):g} W is below"
            f" {path}.idle_power = {np.max(device.idle_power):g} W."
        )
    if np.any(np.greater_equal(device.reserved_memory, device.memory)):
        raise SpecError(
            f"{path}.memory = {format_quantity(float(np.min(device.memory)), 'B')}: no memory is left beside"
            f" {path}.reserved_memory = {format_quantity(float(np.max(device.reserved_memory)), 'B')}; a number"
            ' without a unit is in bytes; write "80 MB" as text.'
        )
    return device


def read_link(value: Any, path: str) -> Link:
    """Build a Link from a catalog name or a table; raises SpecError."""
    link: Link = read_table(Link, resolve("links", value, path, required(Link)), path)
    return link


def read_machine(value: Any, path: str = "machine") -> Machine:
    """Build a Machine from a catalog name or a table, the same object of equal ones; raises SpecError."""
    table = resolve("machines", value, path, required(Machine))
    for key in required(Machine):
        if key not in table:
            raise SpecError(f"{path}.{key}: missing; name one from the catalog or write its table.")
    tiers = table.get("storage", {})
    if not isinstance(tiers, Mapping):
        raise SpecError(f"{path}.storage = {tiers!r}: expected one table for each storage tier.")
    parts: dict[str, Any] = {
        "device": read_device(table["device"], f"{path}.device"),
        "intra_node": read_link(table["intra_node"], f"{path}.intra_node"),
        "inter_node": read_link(table["inter_node"], f"{path}.inter_node"),
        "storage": {
            name: read_table(StorageTier, tier, f"{path}.storage.{name}", given={"name": name})
            if not isinstance(tier, Mapping) or "name" not in tier
            else read_table(StorageTier, tier, f"{path}.storage.{name}")
            for name, tier in tiers.items()
        },
    }
    if "host_link" in table:
        parts["host_link"] = read_link(table["host_link"], f"{path}.host_link")
    if "measured" in table:
        parts["measured"] = read_measured(table["measured"], f"{path}.measured", field_of)
    machine: Machine = read_table(Machine, table, path, given=parts)
    return _first(Keyed(machine, pickle.dumps(machine)))


@lru_cache(maxsize=64)
def _first(key: Keyed[Machine]) -> Machine:
    """Return the first machine of those with one text, whose prices caches find by its id."""
    return key.value


@cache
def load_machine(name: str) -> Machine:
    """Return the catalog's machine of that name; raises SpecError."""
    return read_machine(name)


def storage_tier(machine: Machine, tier: str) -> StorageTier:
    """Return the machine's storage tier of that name; raises SpecError naming the legal ones."""
    if tier not in machine.storage:
        legal = list(machine.storage)
        lead = f"legal on {machine.name or 'this machine'}:"
        message = listed(f"storage.tier = {tier!r}:", tier, legal or ["no tiers"], lead)
        raise SpecError(f'{message} "" means that the data is in memory.')
    return machine.storage[tier]


def field_of(key: str, path: str = "intervals") -> Mapping[str, Any]:
    """Return the declaration of a field of Machine by dotted name: its unit and range.

    Raises SpecError if a machine has no such number.
    """
    inside = {"device": Device, "intra_node": Link, "inter_node": Link, "host_link": Link}
    *parents, last = key.split(".")
    if parents == ["device", "peak"] and last in PRECISIONS:
        return dict(number("FLOP/s", positive=True).metadata)
    cls: Any = Machine if not parents else inside.get(".".join(parents))
    if len(parents) == 2 and parents[0] == "storage":
        cls = StorageTier
    found = {item.name: item.metadata for item in fields(cls)} if cls else {}
    legal = [name for name, meta in found.items() if meta.get("kind") in ("number", "whole")]
    if last not in legal:
        known = [".".join([*parents, name]) for name in legal] or ["jitter", "device.efficiency"]
        raise SpecError(listed(f'{path}."{key}": a machine has no such number;', key, known))
    return found[last]
