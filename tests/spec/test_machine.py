"""Laws of a Machine: from the catalog, from an override or written out, the errors name the place."""

import dataclasses
import math

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.machine import load_machine, read_device, read_link, read_machine, storage_tier

DEVICE = {
    "peak": {"fp32": "1 TFLOP/s"},
    "memory": "16 GiB",
    "memory_bandwidth": "100 GB/s",
    "idle_power": "10 W",
    "busy_power": "100 W",
}
LINK = {"latency": "1 us", "bandwidth": "100 Gb/s"}
MACHINE = {"device": DEVICE, "intra_node": LINK, "inter_node": LINK}

PACE = "device.layers.conv"
every_machine = pytest.mark.parametrize("name", catalog.names("machines"))


def refusal(table):
    with pytest.raises(SpecError) as error:
        read_machine(table)
    return str(error.value)


def test_a_machine_written_out_needs_no_name():
    machine = read_machine(MACHINE)
    assert machine.name == "" and machine.device.name == ""
    assert machine.device.memory == 16 * 2**30
    assert machine.inter_node.bandwidth == 12.5e9
    assert machine.nodes == machine.devices_per_node == machine.nics == 1


def test_a_machine_written_out_may_have_a_name_of_its_own():
    parts = {
        "device": {**DEVICE, "name": "our-gpu"},
        "intra_node": {**LINK, "name": "our link"},
        "inter_node": "ib-hdr",
    }
    table = {"name": "Our cluster", "nodes": 4, **parts}
    machine = read_machine(table)
    assert (machine.name, machine.device.name, machine.nodes) == ("Our cluster", "our-gpu", 4)
    assert machine.intra_node.name == "our link" and machine.inter_node == read_link("ib-hdr", "")
    unnamed = read_machine({key: value for key, value in table.items() if key != "name"})
    assert dataclasses.replace(machine, name="") == unnamed


def test_equal_machines_are_one_object_so_that_they_share_prices():
    """Prices are found by a machine's id; machines that differ in one of 2,000 numbers are two."""
    assert read_machine(MACHINE) is read_machine(dict(MACHINE))
    for change in ({"name": "ours"}, {"jitter": 0.1}, {"jitter": np.array([0.1, 0.2])}):
        other = read_machine(MACHINE | change)
        assert other is not read_machine(MACHINE) and other is read_machine(MACHINE | change)
    tenths = [np.full(2000, 0.1), np.where(np.arange(2000) == 1000, 0.2, 0.1)]
    one, other = (read_machine(MACHINE | {"jitter": each}) for each in tenths)
    assert other.jitter[1000] == 0.2 and one.jitter[1000] == 0.1


@pytest.mark.parametrize("lost", ["device", "intra_node", "inter_node"])
def test_a_name_that_is_not_in_the_catalog_needs_the_whole_table(lost):
    table = {"name": "sumit", **{key: value for key, value in MACHINE.items() if key != lost}}
    message = refusal(table)
    assert "machine.name = 'sumit': not in the catalog" in message and "'summit'" in message
    assert f"To define your own, add {lost} to the table." in message
    assert "write its whole table, with any other name" in refusal({"name": "sumit"})


def test_a_device_of_ones_own_is_refused_with_the_keys_that_it_lacks():
    device = {key: value for key, value in DEVICE.items() if not key.endswith("_power")}
    with pytest.raises(SpecError, match=r"'our-gpu': not in .* add idle_power, busy_power to the"):
        read_device({**device, "name": "our-gpu"})


@every_machine
def test_a_catalog_machine_is_complete(name):
    machine = load_machine(name)
    assert machine == read_machine({"name": name})
    assert machine.device.reserved_memory < machine.device.memory
    assert machine.device.idle_power <= machine.device.busy_power
    for tier, entry in machine.storage.items():
        assert entry.name == tier and storage_tier(machine, tier) is entry


def test_a_field_beside_the_name_overrides_and_nothing_else_changes():
    plain = read_machine("summit")
    changed = read_machine({"name": "summit", "nodes": 10, "inter_node": {"bandwidth": "1 GB/s"}})
    assert changed.nodes == 10 and changed.inter_node.bandwidth == 1e9
    assert changed.inter_node.latency == plain.inter_node.latency
    assert changed.inter_node.name == plain.inter_node.name
    assert (changed.device, changed.intra_node, changed.storage) == (
        plain.device,
        plain.intra_node,
        plain.storage,
    )


def test_a_named_link_replaces_what_was_laid_over_the_old_one():
    changed = read_machine({"name": "summit", "inter_node": "ib-hdr"})
    assert changed.inter_node == read_link("ib-hdr", "inter_node")
    assert changed.inter_node != read_machine("summit").inter_node


def test_a_tier_is_overridden_or_added():
    tiers = {"nvme": {"bandwidth": "1 GB/s"}, "ram": {"bandwidth": "100 GB/s", "scope": "node"}}
    machine = read_machine({"name": "summit", "storage": tiers})
    assert machine.storage["nvme"].bandwidth == 1e9
    assert machine.storage["nvme"].capacity == read_machine("summit").storage["nvme"].capacity
    assert machine.storage["ram"].capacity == math.inf
    assert set(machine.storage) == {"gpfs", "nvme", "ram"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"device": None}, "machine.device"),
        ({"device": {}}, "machine.device.peak"),
        ({"device": {**DEVICE, "peak": {}}}, "machine.device.peak"),
        ({"device": {**DEVICE, "peak": {"fp31": 1}}}, "Did you mean 'fp32'"),
        ({"device": {**DEVICE, "peak": {"fp32": 0}}}, "above 0"),
        ({"device": {**DEVICE, "peak": {"fp32": math.inf}}}, "finite"),
        ({"device": {**DEVICE, "peak": {"fp32": "1 TB/s"}}}, "machine.device.peak.fp32"),
        ({"device": {**DEVICE, "busy_power": "5 W"}}, "machine.device.busy_power"),
        ({"device": {**DEVICE, "reserved_memory": "16 GiB"}}, "machine.device.reserved_memory"),
        ({"device": "v100"}, "machine.device.name = 'v100'"),
        ({"inter_node": {"latency": 1e-6}}, "machine.inter_node.bandwidth: missing"),
        ({"inter_node": {**LINK, "bandwith": 1}}, "Did you mean 'bandwidth'"),
        ({"inter_node": 7}, "expected a name from the catalog or a table"),
        ({"storage": "nvme"}, "machine.storage"),
        ({"storage": {"nvme": "1 GB/s"}}, "machine.storage.nvme"),
        ({"storage": {"nvme": {}}}, "machine.storage.nvme.bandwidth: missing"),
        ({"storage": {"nvme": {"bandwidth": 1, "scope": "rack"}}}, "legal: shared, node"),
        ({"topology": "fat_tree"}, "Did you mean 'fat-tree'"),
        ({"sources": {}}, "machine.sources: unknown key"),
    ],
)
def test_what_is_wrong_is_named_where_it_stands(change, expected):
    assert expected in refusal({**MACHINE, **change})


@pytest.mark.parametrize("key", MACHINE)
def test_a_missing_part_is_named(key):
    assert f"machine.{key}: missing" in refusal({k: v for k, v in MACHINE.items() if k != key})


def test_an_unknown_tier_lists_the_legal_ones():
    with pytest.raises(SpecError) as error:
        storage_tier(read_machine("summit"), "nvm")
    assert "Legal on summit: " in str(error.value) and "gpfs" in str(error.value)
    assert "Did you mean 'nvme'?" in str(error.value)
    with pytest.raises(SpecError, match="no tiers"):
        storage_tier(read_machine(MACHINE), "nvme")


def test_a_device_reads_by_name():
    assert read_device("p40").peak["fp16"] == 184e9


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ({"rate": -1.0}, f"{PACE}.rate = -1 FLOP/s: legal: a number of at least 1 kFLOP/s"),
        ({"rate": 0.0}, f"{PACE}.rate = 0 FLOP/s: legal: a number of at least 1 kFLOP/s"),
        ({"rate": "2 FLOP/s"}, f"{PACE}.rate = 2 FLOP/s: legal: a number of at least 1 kFLOP/s"),
        ({"rate": 1e30}, "rate = .*: legal: from 1 kFLOP/s to 1 EFLOP/s, or inf: no cost"),
        ({"backward_rate": 1e19}, "backward_rate = 10 EFLOP/s: legal: from 1 kFLOP/s to 1 EFLOP/s"),
        ({"bandwidth": 12.0}, "bandwidth = 12 B/s: legal: a number of at least 1 kB/s"),
        ({"backward_bandwidth": 1e19}, "legal: from 1 kB/s to 1 EB/s, or inf"),
        ({"launch": -1e-6}, f"{PACE}.launch = -1 µs: legal: .*at least 0 s and at most 60 s"),
        ({"backward_launch": 3600.0}, f"{PACE}.backward_launch = 60 min: legal: "),
        ({"launch": math.nan}, "launch = nan"),
        (3.0, f"{PACE} = 3.0: expected a table"),
    ],
)
def test_an_implausible_layer_rate_is_refused(rate, message):
    with pytest.raises(SpecError) as error:
        read_device({**DEVICE, "layers": {"conv": rate}})
    for part in message.split(".*"):
        assert part in str(error.value)


def test_layer_rates_at_the_legal_limits_are_read():
    slow = {"launch": 60.0, "rate": "1 kFLOP/s", "bandwidth": "1 kB/s"}
    fast = {"launch": 0.0, "rate": "1 EFLOP/s", "backward_rate": math.inf}
    layers = read_device({**DEVICE, "layers": {"conv": slow, "tanh": fast}}).layers
    assert (layers["conv"].launch, layers["conv"].rate) == (60.0, 1e3)
    assert (layers["tanh"].rate, layers["tanh"].backward_rate) == (1e18, math.inf)
