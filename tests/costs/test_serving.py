"""What a tier's servers take of a sample: apart, the slower limits; one for all, the times add up."""

import pytest

from lib_dlhpc.costs.input import input_time, loading_time
from lib_dlhpc.costs.storage_reads import serving
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import StorageTier

RATES = {"metadata_rate": 1e4, "read_rate": 2e4, "bandwidth": 1e9}


def run(servers, **storage):
    disk = {"scope": "node", "servers": servers, **RATES}
    return Experiment(
        model="resnet50",
        dataset={"name": "imagenet", "samples": 1000, "files": 1000, "bytes": 1e8},
        machine={"name": "laptop", "storage": {"disk": disk, "other": {"bandwidth": 1e15}}},
        strategy={"devices_per_node": 1, "batch": 10},
        storage={"tier": "disk", **storage},
    )


def test_reads_and_bytes_are_served_one_after_the_other():
    asked, served = serving(StorageTier(**RATES), 3, 1, 1e5)
    assert asked == pytest.approx(3e-4)
    assert served == pytest.approx(5e-5 + 1e-4)
    assert serving(StorageTier(**RATES, servers="one"), 3, 1, 1e5)[1] == pytest.approx(4.5e-4)


@pytest.mark.parametrize(("servers", "seconds"), [("apart", 3e-4), ("one", 4.5e-4)])
def test_a_batch_waits_for_what_is_slowest(servers, seconds):
    assert input_time(run(servers)) == pytest.approx(10 * seconds)
    staged = run(servers, access="stage", local="disk")
    assert loading_time(staged) == pytest.approx(1000 * seconds)


def test_packed_files_ask_for_no_metadata():
    assert input_time(run("one", format="packed")) == pytest.approx(10 * 1.5e-4)
