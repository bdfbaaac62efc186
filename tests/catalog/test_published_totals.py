"""Machines against totals that somebody else has added up: TOP500, the centers and the vendors.

A wrong number of nodes, devices, dies or links, or a rate of the wrong units, is off by a factor; the
tolerances are below any such factor.
"""

from typing import NamedTuple

import pytest

from lib_dlhpc.spec.machine import load_machine

P, T, G, Gb = 1e15, 1e12, 1e9, 1e9 / 8
VECTOR = 0.5  # Rpeak counts AMD's vector units; the catalog has the matrix units, twice as fast
# Rpeak counts all 128 cores of a Max 1550 at 0.9 GHz; the catalog has Aurora's 112 at 1.6 GHz.
BASE_CLOCK = 128 / 112 * 0.9 / 1.6


class Entry(NamedTuple):
    """A machine in a TOP500 list. Cores are CPU cores and multiprocessors, compute units or Xe cores."""

    name: str
    cores: int
    host_cores: int  # of a node
    device_cores: int
    rpeak: float  # PFLOP/s
    rmax: float
    counted: float  # the part of the catalog's fp64 rate that Rpeak counts
    within: float


# Cores, Rpeak: list of November 2024, JUPITER November 2025. The rates of NVIDIA's entries are at clocks
# below boost: of Leonardo by little, of GH200 by a quarter. Alps' Rmax and Perlmutter's row are from memory.
TOP500 = [
    Entry("frontier", 9_066_176, 64, 110, 2055.72, 1353.0, VECTOR, 0.15),
    Entry("el-capitan", 11_039_616, 4 * 24, 228, 2746.38, 1742.0, VECTOR, 0.05),
    Entry("aurora", 9_264_128, 104, 64, 1980.01, 1012.0, BASE_CLOCK, 0.1),
    Entry("alps", 2_121_600, 4 * 72, 132, 574.84, 434.9, 1.0, 0.3),
    Entry("lumi", 2_752_704, 64, 110, 531.51, 379.7, VECTOR, 0.1),
    Entry("leonardo", 1_824_768, 32, 124, 306.31, 241.2, 1.0, 0.05),
    Entry("jupiter", 4_801_344, 4 * 72, 132, 1226.28, 1000.0, 1.0, 0.3),
    Entry("perlmutter", 888_832, 64, 108, 113.0, 79.23, 1.0, 0.3),
]
top500 = pytest.mark.parametrize("entry", TOP500, ids=lambda entry: entry.name)


def nodes_of(entry):
    """Return (nodes of the run, what is left of its cores)."""
    per_node = load_machine(entry.name).devices_per_node
    return divmod(entry.cores, entry.host_cores + per_node * entry.device_cores)


@top500
def test_cores_of_the_list_are_whole_nodes_and_nearly_the_machine(entry):
    nodes, left = nodes_of(entry)
    assert left == 0
    assert 0.95 * load_machine(entry.name).nodes <= nodes <= load_machine(entry.name).nodes


@top500
def test_devices_times_fp64_peak_is_rpeak(entry):
    machine, (nodes, _) = load_machine(entry.name), nodes_of(entry)
    peak = nodes * machine.devices_per_node * machine.device.peak["fp64"]
    assert entry.counted * peak == pytest.approx(entry.rpeak * P, rel=entry.within)


@top500
def test_linpack_reaches_between_half_and_nine_tenths_of_it(entry):
    machine, (nodes, _) = load_machine(entry.name), nodes_of(entry)
    peak = entry.counted * nodes * machine.devices_per_node * machine.device.peak["fp64"]
    assert 0.5 < entry.rmax * P / peak < 0.9


# What a node (a domain of nodes), a pod or a machine has in total.
def peak(precision, of="machine"):
    def total(m):
        many = m.nodes if of == "machine" else m.domain
        return many * m.devices_per_node * m.device.peak[precision]

    return total


def memory(m):
    return m.domain * m.devices_per_node * m.device.memory


def injection(m):
    return m.nics * m.inter_node.bandwidth


def links(m):
    return m.domain * m.devices_per_node * m.intra_node.bandwidth


def torus(links_of_a_chip):
    return lambda m: m.nodes * m.devices_per_node * links_of_a_chip * m.inter_node.bandwidth


TOTALS = [
    ("frontier", injection, 100 * G, 0, "OLCF: node injection"),
    ("frontier", memory, 512 * 2**30, 0, "eight of 64 GiB"),
    ("aurora", memory, 768 * 2**30, 0, "ALCF: GPU HBM of a node"),
    ("perlmutter", peak("fp64"), 140 * P, 0.01, "NERSC: GPU, tensor"),
    ("polaris", peak("fp64"), 44 * P, 0.01, "announcement of 2021: about 44 PFLOP/s"),
    ("polaris", peak("bf16", "node"), 1.3 * P, 0.05, "ALCF: BF16 tensor core"),
    ("leonardo", injection, 400 * Gb, 0, "CINECA: aggregated"),
    ("stampede3", peak("fp64"), 4 * P, 0.05, "TACC, July 2023: about 4 PFLOP/s of 560 nodes"),
    ("gb200-nvl72", links, 65 * T, 0.01, "NVIDIA: 130 TB/s in both directions"),
    ("gb200-nvl72", memory, 13.4e3 * 2**30, 0.01, "NVIDIA: HBM3e of a rack"),
    ("gb200-nvl72", peak("fp8", "node"), 360 * P, 0.01, "NVIDIA: 720 PFLOP/s with sparsity"),
    ("gb300-nvl72", links, 130 * T / 2, 0.01, "NVIDIA: 130 TB/s in both directions"),
    ("gb300-nvl72", memory, 20.1e3 * 2**30, 0.01, "NVIDIA: HBM3e of a rack"),
    ("gb300-nvl72", peak("fp8", "node"), 360 * P, 0.01, "NVIDIA: 720 PFLOP/s with sparsity"),
    ("gb300-nvl72", peak("bf16", "node"), 180 * P, 0.01, "Verda: 180 PFLOP/s of a rack"),
    ("b200-pod", links, 7.2 * T, 0.01, "DGX B200: 14.4 TB/s in both directions"),
    ("b200-pod", memory, 1440 * 2**30, 0.01, "DGX B200"),
    ("gaudi3-pod", injection, 4.8 * T / 8, 0, "ml-engineering: 4.8 Tb/s a node"),
    ("trainium2-pod", peak("bf16", "node"), 10.7 * P, 0.01, "AWS: trn2.48xlarge"),
    ("trainium2-pod", memory, 1536 * 2**30, 0, "AWS: trn2.48xlarge"),
    ("trainium2-pod", injection, 3200 * Gb, 0, "AWS: EFA"),
    ("trainium3-pod", peak("fp8", "node"), 362 * P, 0.01, "AWS: Gen2 UltraServer"),
    ("trainium3-pod", memory, 20.7e3 * 2**30, 0.01, "AWS: 20.7 TB, of 144 GiB chips"),
    ("mi355x-pod", peak("bf16", "node"), 20.1 * P, 0.01, "AMD: platform of eight, dense"),
    ("mi355x-pod", peak("fp8", "node"), 40.3 * P, 0.01, "AMD: platform of eight, dense"),
    ("mi355x-pod", memory, 2.3e3 * 2**30, 0.01, "AMD: platform of eight"),
    ("tpu-v3-pod", torus(4), 340 * T, 0.02, "Google: all-reduce bandwidth of a pod"),
    ("tpu-v4-pod", torus(6), 1.1 * P, 0.02, "Google: all-reduce bandwidth of a pod"),
    ("tpu-v5e-pod", torus(4), 51.2 * T, 0.001, "Google: all-reduce bandwidth of a pod"),
    ("tpu-v6e-pod", torus(4), 102.4 * T, 0.001, "Google: all-reduce bandwidth of a pod"),
    ("tpu-v4-pod", peak("bf16"), 1.1e18, 0.03, "Google: peak of a pod"),
    ("tpu-v5e-pod", peak("bf16"), 50.63 * P, 0.01, "Google: peak of a pod"),
    ("tpu7x-pod", peak("fp8"), 42.5e18, 0.01, "Google: 42.5 exaflops of a pod"),
    ("tpu7x-pod", lambda m: m.nodes * memory(m), 1.77e6 * 2**30, 0.001, "Google: 1.77 PB of a pod"),
    ("tpu-v6e-pod", peak("bf16"), 234.9 * P, 0.01, "Google: peak of a pod"),
]


@pytest.mark.parametrize(("name", "total", "published", "within", "source"), TOTALS)
def test_the_parts_are_the_published_total(name, total, published, within, source):
    assert total(load_machine(name)) == pytest.approx(published, rel=max(within, 1e-9)), source


@pytest.mark.parametrize("chip", ["tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu7x"])
def test_links_that_leave_a_host_are_those_not_used_within(chip):
    machine = load_machine(f"{chip}-pod")
    chips = machine.devices_per_node
    of_a_chip = 6 if chip in ("tpu-v4", "tpu-v5p", "tpu7x") else 4
    neighbors = {4: 4, 8: 10}[chips]  # pairs in a grid of 2 x 2, of 4 x 2
    assert machine.nics == chips * of_a_chip - 2 * neighbors
