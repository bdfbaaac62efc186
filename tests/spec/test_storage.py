"""Laws of [storage]: staging to nodes needs a node-local tier; every field round-trips through TOML."""

import dataclasses

import numpy as np
import pytest

from lib_dlhpc import SpecError, dumps, loads
from lib_dlhpc.spec.run import CHECKPOINTS, WRITERS
from lib_dlhpc.spec.storage import ACCESSES, FORMATS, Storage

RUN = """
model = { name = "resnet50" }
dataset = { name = "imagenet" }
machine = { name = "summit" }
strategy = { nodes = 4 }
"""
FULL = {
    "storage.access": "cooperative",
    "storage.local": "nvme",
    "storage.format": "packed",
    "storage.operations_per_file": 1.0,
    "storage.reads_per_file": 1.5,
    "storage.compression": 2.0,
    "storage.decompress": 5e8,
    "storage.decode": 0.008,
    "storage.workers": 4,
    "storage.prefetch": 2,
    "storage.cache": 1e10,
    "storage.replication": 2,
}


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ('access = "stage"', ["storage.access", "storage.tier"]),
        ('tier = "gpfs", access = "stage"', ["storage.local", "in each node", "nvme"]),
        ('tier = "gpfs", access = "cooperative", local = "gpfs"', ["storage.local", "nvme"]),
        ('tier = "gpfs", access = "cooperative", local = "nvm"', ["nvme", "nvm"]),
        ('tier = "gpfs", local = "nvm"', ["storage.local", "nvme"]),
        (
            'tier = "gpfs", access = "cooperative", local = "nvme", replication = 5',
            ["storage.replication = 5", "at most", "4"],
        ),
        ('tier = "gpfs", access = "streamed"', ["storage.access", *ACCESSES]),
        ('tier = "gpfs", format = "tar"', ["storage.format", *FORMATS]),
        ('tier = "gpfs", compression = 0', ["storage.compression", "above 0"]),
        ('tier = "gpfs", workers = 1.5', ["storage.workers", "whole"]),
        ('tier = "gpfs", decode = "-1 ms"', ["storage.decode"]),
    ],
)
def test_what_cannot_be_is_named_with_what_can(storage, words):
    with pytest.raises(SpecError) as wrong:
        loads(f"{RUN}storage = {{ {storage} }}")
    assert all(word in str(wrong.value) for word in words), wrong.value


@pytest.mark.parametrize(
    ("run", "legal"),
    [('checkpoint = "now"', CHECKPOINTS), ('checkpoint_writers = "some"', WRITERS)],
)
def test_ways_to_save_are_named(run, legal):
    with pytest.raises(SpecError) as wrong:
        loads(f"{RUN}run = {{ {run} }}")
    assert all(word in str(wrong.value) for word in legal)


def test_more_copies_than_the_fewest_nodes_of_an_array_are_refused():
    run = loads(f'{RUN}storage = {{ tier = "gpfs", access = "cooperative", local = "nvme" }}')
    run = run.set({"storage.replication": 2, "strategy.nodes": np.array([2, 4])})
    with pytest.raises(SpecError, match="replication"):
        run.set({"strategy.nodes": np.array([1, 4])})


def test_every_field_round_trips_and_defaults_are_not_written():
    base = loads(f'{RUN}storage = {{ tier = "gpfs" }}')
    full = base.set(FULL)
    assert {key.partition(".")[2] for key in FULL} | {"tier"} == {
        item.name for item in dataclasses.fields(Storage)
    }
    assert loads(dumps(full)) == full
    assert "compression" in dumps(full) and "compression" not in dumps(base)
    tier = {
        f"machine.storage.nvme.{name}": value
        for name, value in (
            ("operation_latency", 1e-5),
            ("read_latency", 2e-4),
            ("reader_bandwidth", 3e9),
        )
    }
    changed = full.set({**tier, "machine.node_mtbf": 1e7, "machine.restart_time": 60.0})
    assert loads(dumps(changed)) == changed
