"""A machine from outputs of other tools: fitted as calibrate fits, each number with its origin, the rest asked for."""

import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.calibration.imported_machine import import_machine, read_files
from lib_dlhpc.calibration.imported_report import as_toml
from lib_dlhpc.calibration.messages import SMALLEST
from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.measurements import File, Timed, measurements_of
from lib_dlhpc.schedules.network import Level, Network
from lib_dlhpc.schedules.rings import ring_allgather_cost
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.spec.measured_machine import foreign, load_measured, value_of

SIZES = [2**power for power in range(3, 23)]
MIB = 2.0**20


@pytest.fixture(scope="module")
def files(repository):
    """Real outputs by PART=NAME."""

    def of(*arguments):
        folder = repository / "tests/data/measurements"
        return read_files(
            [(a, (folder / a.rpartition("=")[2]).read_text("utf-8")) for a in arguments]
        )

    return of


@pytest.fixture(scope="module")
def found(files):
    names = (
        "nccl_h100.log",
        "inter_node=osu_latency.txt",
        "inter_node=osu_bw.txt",
        "storage.scratch=mdtest.txt",
    )
    return import_machine(files(*names, "storage.scratch=ior.txt"), "h100-pod")


def latencies(alpha, bandwidth, link="inter_node", name="latency.txt"):
    """What osu_latency prints of a link: us."""
    rows = "".join(f"{n} {1e6 * (alpha + n / bandwidth):.6f}\n" for n in SIZES)
    return File(name, f"# OSU MPI Latency Test v7.5\n# Size Avg Latency(us)\n{rows}", link)


def bandwidths(gap, bandwidth, name="bw.txt"):
    """What osu_bw prints of a link: MB/s of messages that each take a gap more."""
    rows = "".join(f"{n} {n / (gap + n / bandwidth) / 1e6:.6f}\n" for n in SIZES)
    return File(
        name, f"# OSU MPI Bandwidth Test v7.5\n# Size Bandwidth (MB/s)\n{rows}", "inter_node"
    )


@settings(max_examples=5)  # of 0.7 s
@given(alpha=st.floats(5e-7, 5e-5), bandwidth=st.floats(1e8, 4e11), gap=st.floats(1e-7, 1e-6))
def test_the_link_behind_two_outputs_is_found(alpha, bandwidth, gap):
    made = [latencies(alpha, bandwidth), bandwidths(gap, bandwidth)]
    link = import_machine(made, "selene").machine.inter_node
    assert link.latency == pytest.approx(alpha, rel=0.02)
    assert link.bandwidth == pytest.approx(bandwidth, rel=0.02)
    assert link.efficiency == 1.0  # measured is what is reached


def test_an_interval_contains_its_number_and_the_shortest_message(found):
    assert set(found.intervals) == {
        "intra_node.bandwidth",
        "inter_node.latency",
        "inter_node.bandwidth",
        "storage.scratch.metadata_rate",
    }
    for key, (low, high) in found.intervals.items():
        assert low <= value_of(found.machine, key) <= high
    assert found.intervals["inter_node.latency"][0] == pytest.approx(1.02e-6)


def test_a_single_repeat_has_a_number_and_no_interval(found):
    tier = found.machine.storage["scratch"]
    assert tier.bandwidth == pytest.approx(7438 * MIB)
    assert tier.write_bandwidth == pytest.approx(6335 * MIB)
    assert (
        "one repeat: no interval; ior.txt, line 33: IOR read"
        in found.origins["storage.scratch.bandwidth"]
    )


def test_long_messages_say_nothing_about_a_latency(files, found):
    assert "intra_node.latency" not in found.origins
    assert found.machine.intra_node.latency == load_machine("h100-pod").intra_node.latency
    assert min(SIZES) < SMALLEST


def test_the_price_of_what_was_measured_is_what_was_measured(files, found):
    """The formula that predicts an all-gather, on the machine that was fitted to its times."""
    link = found.machine.intra_node
    net = Network(
        Level(8, link.latency, 1 / (link.bandwidth * link.efficiency)), Level(1, 0.0, 0.0), 0.0
    )
    times = [
        each
        for file in files("nccl_h100.log")
        for each in measurements_of(file)
        if isinstance(each, Timed)
    ]
    sizes = [each.terms["intra_node.bandwidth"] / (7 / 8) for each in times]
    took = [min(each.seconds) for each in times]
    off = [ring_allgather_cost(n, net).total / t - 1 for n, t in zip(sizes, took, strict=True)]
    assert len(off) == 20
    assert np.median(np.abs(off)) < 0.05
    assert max(map(abs, off)) < 0.35  # the shortest, of 32 MiB


def test_one_size_of_each_is_enough():
    """As with -m 1:1 and -m 268435456:268435456."""
    latency = File("l.txt", "# OSU MPI Latency Test v7.5\n1 1.67\n", "inter_node")
    bandwidth = File("b.txt", "# OSU MPI Bandwidth Test v7.5\n268435456 12254.16\n", "inter_node")
    link = import_machine([latency, bandwidth], "selene").machine.inter_node
    assert link.latency == pytest.approx(1.67e-6, rel=1e-3)
    assert link.bandwidth == pytest.approx(12254.16e6)
    before = load_machine("selene").inter_node
    for file, kept, changed in (
        (latency, "bandwidth", "latency"),
        (bandwidth, "latency", "bandwidth"),
    ):
        found = import_machine([file], "selene")
        assert getattr(found.machine.inter_node, kept) == getattr(before, kept)
        assert (
            f"inter_node.{changed}" in found.origins and f"inter_node.{kept}" not in found.origins
        )


def test_a_log_of_nccl_from_short_messages_on_has_latency_and_bandwidth():
    """An allreduce of 8 ranks by the law of a ring: 14 latencies, 14/8 of the bytes."""
    ranks = "".join(
        f"#  Rank  {n} Group  0 Pid 1 on node device  {n} [0x07] NVIDIA H200\n" for n in range(8)
    )
    rows = ""
    for n in SIZES:
        us = 1e6 * (14 * 2e-6 + 14 / 8 * n / 300e9)
        algbw = n / us / 1e3
        half = f"{us:.6f} {algbw:.6f} {14 / 8 * algbw:.6f} 0 "
        rows += f"{n} {n // 4} float sum -1 {half * 2}\n"
    head = "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 8 minBytes 8\n"
    found = import_machine(
        [File("a", f"{head}{ranks}# size count type redop root time algbw busbw\n{rows}")], "selene"
    )
    link = found.machine.intra_node
    assert (link.latency, link.bandwidth) == (
        pytest.approx(2e-6, rel=0.01),
        pytest.approx(300e9, rel=0.01),
    )
    assert found.table["device"] == "h200-sxm-141gb"


def test_tags_of_ranks_before_lines_are_not_read(files):
    (plain,) = files("inter_node=osu_latency.txt")
    for tag in ("[1,0]<stdout>:", "0: "):
        tagged = "".join(f"{tag}{line}\n" for line in plain.text.splitlines())
        assert read_files([("inter_node=osu_latency.txt", tagged)]) == [plain]


def test_each_file_of_a_link_is_used_and_named(files, found):
    more = import_machine(
        files("inter_node=osu_latency.txt", "inter_node=osu_bw.txt", "inter_node=imb_pingpong.txt"),
        "h100-pod",
    )
    for name in ("osu_latency.txt", "osu_bw.txt", "imb_pingpong.txt"):
        assert name in more.origins["inter_node.bandwidth"]
    before, after = (each.machine.inter_node.bandwidth for each in (found, more))
    assert before != after and after == pytest.approx(before, rel=0.05)
    assert not [note for note in more.notes if "contradict" in note]


def test_measurements_that_contradict_each_other_are_named(files):
    more = import_machine(files("nccl_h100.log", "nccl_h100_allreduce.log"), "h100-pod")
    (note,) = [note for note in more.notes if "contradict" in note]
    assert "nccl_h100_allreduce.log (nccl-tests all_reduce) +" in note and "all_gather) -" in note
    slow = [latencies(1e-6, 1e10), latencies(1e-6, 1e9, name="other.txt")]
    assert any("other.txt" in note for note in import_machine(slow, "selene").notes)


def test_statements_that_contradict_each_other_are_an_error_unless_one_is_set(files):
    two = files("nccl_h100.log", "nvidia_smi.txt")
    with pytest.raises(
        SpecError,
        match=r"device = 'h100-sxm-80gb' \(nccl_h100.log, lines 6-46.*nvidia_smi.txt, line 10",
    ):
        import_machine(two, "h100-pod")
    assert (
        import_machine(two, "h100-pod", {"device": "h100-sxm-80gb"}).machine.devices_per_node == 4
    )


def test_all_that_is_missing_is_in_one_error(files):
    with pytest.raises(
        SpecError, match=r"no file says nodes, nics, intra_node.latency, intra_node.bandwidth"
    ) as error:
        import_machine(files("nvidia_smi.txt", "inter_node=osu_latency.txt"))
    assert "inter_node." not in str(error.value)
    given = {"nodes": 4, "nics": 1, "intra_node": "nvlink3"}
    machine = import_machine(
        files("nvidia_smi.txt", "inter_node=osu_latency.txt"), "", given
    ).machine
    assert (machine.nodes, machine.devices_per_node, machine.device.memory) == (4, 4, 81920 * MIB)
    assert machine.device.peak == load_machine("selene").device.peak
    with pytest.raises(SpecError, match=r"nor selene says storage.scratch.bandwidth; give them"):
        import_machine(files("storage.scratch=mdtest.txt"), "selene")


def test_nics_of_a_node_carry_its_messages_together(files):
    one = import_machine(files("nccl_two_nodes.log"), "h100-pod", {"nics": 1}).machine.inter_node
    four = import_machine(files("nccl_two_nodes.log"), "h100-pod", {"nics": 4}).machine.inter_node
    eight = import_machine(files("nccl_two_nodes.log"), "h100-pod", {"nics": 8}).machine.inter_node
    assert one.bandwidth == pytest.approx(4 * four.bandwidth)
    assert eight.bandwidth == pytest.approx(four.bandwidth)  # four ranks use four of them
    with pytest.raises(SpecError, match="no file says nics"):
        import_machine(files("nccl_two_nodes.log"))


def test_a_node_s_own_tier_has_its_part_of_the_rate(files):
    shared, own = (
        import_machine(
            files("storage.x=ior.txt"), "selene", {"storage.x.scope": scope}
        ).machine.storage["x"]
        for scope in ("shared", "node")
    )
    assert shared.bandwidth == pytest.approx(8 * own.bandwidth)


def test_what_is_set_wins_and_has_no_interval(files):
    machine = import_machine(
        files("inter_node=osu_bw.txt"), "selene", {"machine.inter_node.bandwidth": "5 GB/s"}
    )
    assert machine.machine.inter_node.bandwidth == 5e9
    assert machine.origins["inter_node.bandwidth"] == "given by --set" and not machine.intervals


def test_every_number_in_the_file_has_its_origin(found):
    text = as_toml(found)
    numbers = text.partition("[machine.measured]")[0].splitlines()
    assert not [line for line in numbers if " = " in line and "  # " not in line]
    assert "# 1.02 µs to" in text and "osu_latency.txt, lines 16-26: OSU osu_latency" in text
    assert "nodes = 3072  # h100-pod: Grattafiori" in text and "(computed)" in text


def test_the_file_is_the_machine(found, tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(as_toml(found), "utf-8")
    read = load_measured(path)
    assert read.measured.complete and read.measured.host.startswith("nccl_h100.log, ")
    for key in found.intervals:
        assert value_of(read, key) == pytest.approx(value_of(found.machine, key), rel=1e-3)
    assert foreign(read) == [
        f"It was imported from {read.measured.host}; `dlhpc calibrate` measures this machine."
    ]
    assert read.storage["nvme"] == load_machine("h100-pod").storage["nvme"]
    assert set(tomllib.loads(as_toml(found))) == {"machine"}


@pytest.mark.parametrize("argument", ["inter_node:1=a", "inter_node:x=a", "storage.a b=c"])
def test_a_part_that_is_none_is_an_error(argument):
    with pytest.raises(SpecError, match=r"expected a number of ranks|letters, digits"):
        read_files([(argument, "")])


def test_a_name_may_contain_an_equals_sign():
    assert read_files([("a=b.txt", "")]) == [File("a=b.txt", "")]
    assert read_files([("intra_node:8=a=b", "")]) == [File("a=b", "", "intra_node", 8)]
