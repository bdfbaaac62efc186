"""The GB of a data sheet are 2^30 B; what a device reports is at most 2% less."""

import pytest

from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.machine import read_device

SHEETS = {
    "a100-sxm-40gb": 40,
    "a100-sxm-64gb": 64,
    "a100-sxm-80gb": 80,
    "a800-sxm-80gb": 80,
    "b200-sxm-180gb": 180,
    "gaudi3": 128,
    "gb200-186gb": 186,
    "gb300-279gb": 279,
    "gh200-96gb": 96,
    "h100-sxm-80gb": 80,
    "h20-sxm-96gb": 96,
    "h200-sxm-141gb": 141,
    "h800-sxm-80gb": 80,
    "mi300a": 128,
    "mi300x": 192,
    "mi350x": 288,
    "mi355x": 288,
    "p100-sxm2": 16,
    "tpu-v4": 32,
    "tpu-v5e": 16,
    "tpu-v5p": 95,
    "tpu-v6e": 32,
    "tpu7x": 192,
    "v100-sxm2-16gb": 16,
    "v100-sxm2-32gb": 32,
    "xeon-max-9480": 64,
}


@pytest.mark.parametrize("name", SHEETS)
def test_a_device_reports_the_gib_of_its_data_sheet(name):
    sheet = SHEETS[name] * 2**30
    assert 0.98 * sheet <= read_device(name).memory <= sheet


@pytest.mark.parametrize("name", sorted(set(catalog.names("devices")) - {"laptop-core"}))
def test_memory_is_written_in_binary_units(name):
    """All but the laptop's share of memory, which is an estimate."""
    assert catalog.read("devices", name)["memory"].endswith(("MiB", "GiB"))
