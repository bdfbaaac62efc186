"""Outputs of other tools are read as they mean them: what one column says in another unit, the others confirm."""

import contextlib
import json
import random
import re

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.measurements import File, Note, Timed, Value, measurements_of

# Real outputs (THIRD_PARTY.md), and what each measured, where its text does not say so.
OUTPUTS = {
    "nccl_h100.log": "",
    "nccl_h100_allreduce.log": "",
    "nccl_two_nodes.log": "",
    "osu_latency.txt": "inter_node",
    "osu_bw.txt": "inter_node",
    "osu_allreduce.txt": "inter_node:64",
    "imb_pingpong.txt": "inter_node",
    "ior.txt": "storage.scratch",
    "mdtest.txt": "storage.scratch",
    "dlio.txt": "storage.scratch",
    "darshan.txt": "storage.scratch",
    "fio.txt": "storage.disk",
    "fio.json": "storage.disk",
    "stream.txt": "device",
    "nvidia_smi.txt": "",
    "hwloc.xml": "",
}
STATED = [name for name, part in OUTPUTS.items() if part]
TABLES = [name for name in OUTPUTS if name not in ("nvidia_smi.txt", "hwloc.xml", "fio.json")]
GB, MIB = 1e9, 2.0**20


@pytest.fixture
def output(repository):
    """A real output as a file, with another text if one is given."""

    def of(name, text=None):
        part, _, ranks = OUTPUTS[name].partition(":")
        path = repository / "tests/data/measurements" / name
        return File(name, text or path.read_text("utf-8"), part, int(ranks or 0))

    return of


def times(file):
    return [each for each in measurements_of(file) if isinstance(each, Timed)]


def values(file):
    return {each.key: each.value for each in measurements_of(file) if isinstance(each, Value)}


def rate(timed, key):
    """Amount of a key over the least time."""
    return timed.terms[key] / min(timed.seconds)


def bus_bandwidths(text):
    """The larger bus bandwidth of each row, as nccl-tests printed it."""
    rows = re.findall(r"^ +\d+ +\d+ .*$", text, re.MULTILINE)
    return [max(float(row.split()[at]) for at in (7, 11)) for row in rows]


@pytest.mark.parametrize("name", ["nccl_h100.log", "nccl_h100_allreduce.log"])
def test_a_ring_of_nccl_moves_its_bus_bandwidth_over_the_link(output, name):
    file = output(name)
    printed = bus_bandwidths(file.text)
    found = [rate(each, "intra_node.bandwidth") / GB for each in times(file)]
    assert len(found) == len(printed) >= 10
    assert found == pytest.approx(printed, rel=2e-3)
    latencies = {each.terms["intra_node.latency"] for each in times(file)}
    assert latencies == {14 if "allreduce" in name else 7}


def test_alltoall_between_nodes_counts_what_leaves_a_node(output):
    last = times(output("nccl_two_nodes.log"))[-1]
    # Four ranks of a node send half of their data to the other: 4/2 * 82 GB/s, over at most four links.
    assert rate(last, "inter_node.bandwidth") == pytest.approx(4 / 2 * 82.01 * GB, rel=1e-3)
    assert last.links == 4


def test_latency_is_of_one_message_and_bandwidth_of_many(output):
    one, many = times(output("osu_latency.txt")), times(output("osu_bw.txt"))
    assert one[0].seconds == (1.02e-6,) and one[0].terms["inter_node.latency"] == 1
    assert rate(many[-1], "inter_node.bandwidth") == pytest.approx(12164.86e6)
    assert "inter_node.latency" not in many[-1].terms


def test_columns_of_osu_with_full_results_are_repeats():
    text = "# OSU MPI Latency Test v7.5\n# Size  Avg Latency(us)  Min Latency(us)  Max Latency(us)  Iterations\n"
    (row,) = times(File("a", text + "8192  4.5  4.25  5.0  1000\n", "inter_node"))
    assert row.seconds == pytest.approx((4.5e-6, 4.25e-6, 5e-6))


def test_both_directions_are_two_of_one(output):
    file = output("osu_bw.txt")
    both = file.text.replace("MPI Bandwidth", "MPI Bi-Directional Bandwidth")
    one, two = times(file)[-1], times(output("osu_bw.txt", both))[-1]
    assert two.seconds[0] == pytest.approx(2 * one.seconds[0])


def test_half_a_round_trip_has_the_rate_that_is_printed_beside_it(output):
    file = output("imb_pingpong.txt")
    printed = float(re.findall(r"4194304 +10 +\S+ +(\S+)", file.text)[0])
    assert rate(times(file)[-1], "inter_node.bandwidth") == pytest.approx(printed * 1e6, rel=1e-4)


def test_an_allreduce_of_imb_is_a_ring_of_its_processes_in_the_mean_time():
    head = "# Intel(R) MPI Benchmarks 2021\n# Benchmarking Allreduce\n# #processes = 4\n"
    columns = "#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec]\n"
    (row,) = times(
        File("a", f"{head}{columns}0 1000 0.1 0.1 0.1\n8192 1000 10.0 30.0 20.0\n", "intra_node")
    )
    assert row.terms == {"intra_node.latency": 6, "intra_node.bandwidth": 6 / 4 * 8192}
    assert row.seconds == pytest.approx((20e-6,))


def test_an_allreduce_of_osu_is_a_ring_of_the_ranks_that_are_stated(output):
    last = times(output("osu_allreduce.txt"))[-1]
    assert last.terms["inter_node.latency"] == 2 * 63
    assert last.terms["inter_node.bandwidth"] == pytest.approx(2 * 63 / 64 * 2**20)
    assert last.seconds == pytest.approx((3730.69e-6,))


def test_ior_s_mebibytes_are_the_megabytes_that_it_prints_as_well(output):
    file = output("ior.txt")
    found = {key: rate(each, key) for each in times(file) for key in each.terms}
    for what, key in (("Write", "write_bandwidth"), ("Read", "bandwidth")):
        printed = float(re.findall(rf"Max {what}: .*\((\S+) MB/sec\)", file.text)[0])
        assert found[f"storage.scratch.{key}"] == pytest.approx(printed * 1e6, rel=1e-3)
    assert {each.nodes for each in times(file)} == {8}


def test_iterations_of_ior_are_repeats_and_one_task_is_one_reader(output):
    file = output("ior.txt")
    row = "read      7438 "
    text = file.text.replace(row, f"read      7000  -\n{row}").replace(
        "tasks               : 64", "tasks : 1"
    )
    (read,) = [each for each in times(output("ior.txt", text)) if "write" not in str(each.terms)]
    assert read.seconds == pytest.approx((1 / (7000 * MIB), 1 / (7438 * MIB)))
    assert list(read.terms) == ["storage.scratch.reader_bandwidth"]


def test_a_read_of_mdtest_is_two_operations_of_a_stat(output):
    stat, read = times(output("mdtest.txt"))
    key = "storage.scratch.metadata_rate"
    assert (stat.terms[key], read.terms[key]) == (1, 2)
    assert min(1 / each for each in stat.seconds) == pytest.approx(46180.116)


def test_a_summary_of_times_is_no_summary_of_rates(output):
    text = output("mdtest.txt").text
    times_too = text.replace(
        "-- finished",
        "SUMMARY time: (of 3 iterations)\n   File stat : 2.8 2.7 2.75 0.1\n-- finished",
    )
    assert times(output("mdtest.txt", times_too)) == times(output("mdtest.txt"))


def test_fio_s_bandwidth_is_the_one_in_decimal_units_beside_it(output):
    (read,) = times(output("fio.txt"))
    middle = sorted(read.seconds)[1]
    assert read.terms["storage.disk.bandwidth"] / middle == pytest.approx(428e6, rel=5e-3)
    (write,) = times(output("fio.json"))
    table = json.loads(output("fio.json").text)["jobs"][0]["write"]
    found = write.terms["storage.disk.write_bandwidth"] / min(write.seconds)
    assert found == pytest.approx(table["bw_bytes"], rel=1e-6)


def test_one_reader_of_fio_tells_latency_and_its_own_bandwidth(output):
    text = output("fio.txt").text.replace("jobs=2", "jobs=1")
    (read,) = times(output("fio.txt", text))
    assert set(read.terms) == {"storage.disk.read_latency", "storage.disk.reader_bandwidth"}


def test_triad_moves_its_bytes_in_the_least_time_at_the_best_rate(output):
    (triad,) = times(output("stream.txt"))
    assert rate(triad, "device.memory_bandwidth") == pytest.approx(903687.9e6)
    assert sorted(triad.seconds) == [0.003187, 0.003223, 0.003308]


def test_dlio_s_megabytes_are_mebibytes_of_its_samples(output):
    (read,) = times(output("dlio.txt"))
    middle = sorted(read.seconds)[1]
    sample = 146_600_628  # B of a sample of unet3d in MLPerf Storage
    assert 1 / middle == pytest.approx(3.1146 * sample, rel=1e-4)
    busy = output("dlio.txt").text.replace("15.1989", "95.1989")
    assert any(isinstance(each, Note) for each in measurements_of(output("dlio.txt", busy)))


def test_devices_of_a_node_are_found_in_the_catalog(output):
    assert values(output("nvidia_smi.txt")) == {
        "devices_per_node": 4,
        "device": "a100-sxm-80gb",
        "device.memory": "81920 MiB",
        "device.busy_power": "500.00 W",
    }
    assert values(output("nccl_h100.log")) == {"device": "h100-sxm-80gb"}


def test_a_device_that_is_not_in_the_catalog_is_named(output):
    text = output("nvidia_smi.txt").text.replace("A100-SXM4-80GB", "Of Tomorrow")
    found = measurements_of(output("nvidia_smi.txt", text))
    assert "device" not in {each.key for each in found if isinstance(each, Value)}
    assert any("'NVIDIA Of Tomorrow'" in each.text for each in found if isinstance(each, Note))


def test_a_node_of_hwloc_has_the_memory_of_all_its_numa_nodes(output):
    found = values(output("hwloc.xml"))
    assert found == {"host_memory": "38.6439823 GB", "nics": 1, "devices_per_node": 1}
    older = output("hwloc.xml").text.replace('version="3.0"', 'version="2.0"')
    older = older.replace('osdev_type="32"', 'osdev_type="3"')
    assert values(output("hwloc.xml", older)) == found


def test_sockets_are_the_devices_of_a_node_without_accelerators(output):
    text = output("hwloc.xml").text.replace("0302 [10de:06d2]", "0108 [10de:06d2]")
    model = '<info name="CPUModel" value="Intel(R) Xeon(R) Platinum 8280 CPU @ 2.70GHz"/>'
    text = text.replace('<info name="DMIBoardVendor" value="HP"/>', model)
    found = values(output("hwloc.xml", text))
    assert (found["device"], found["devices_per_node"]) == ("xeon-8280", 2)


def test_simgrid_s_cluster_with_a_backbone():
    """The numbers of its example platform cluster_backbone.xml."""
    cluster = '<cluster id="acme" prefix="node-" radical="0-99" suffix="" speed="1Gf" bw="125MBps" lat="50us"'
    text = f'<platform version="4.1">\n{cluster} bb_bw="2.25GBps" bb_lat="500us"/>\n</platform>'
    found = values(File("cluster.xml", text))
    assert found["nodes"] == 100
    assert found["inter_node.latency"] == pytest.approx(600e-6)
    assert found["inter_node.bandwidth"] == pytest.approx(125e6)


def test_a_message_of_a_platform_passes_two_links_and_the_backbone():
    text = (
        '<?xml version="1.0"?>\n<platform version="4.1">\n<cluster id="c" prefix="n" radical="0-7,9" suffix=""\n'
        ' speed="2Gf" core="4" bw="10Gbps" lat="5us" bb_bw="1GBps" bb_lat="1us"/>\n</platform>\n'
    )
    found = values(File("platform.xml", text))
    assert found["nodes"] == 9
    assert found["inter_node.latency"] == pytest.approx(11e-6)
    assert found["inter_node.bandwidth"] == pytest.approx(1e9)
    assert found["device.peak.fp64"] == pytest.approx(8e9)


@pytest.mark.parametrize("name", STATED)
def test_what_a_text_does_not_say_is_asked_for(output, name):
    file = output(name)
    with pytest.raises(SpecError, match=f"{name}: .* does not (say|print).*write.*={name}"):
        measurements_of(File(name, file.text, "inter_node" if "allreduce" in name else ""))


@pytest.mark.parametrize("name", TABLES)
def test_a_broken_line_is_named(output, name):
    """The last number of the row that was read last is no number any more."""
    file = output(name)
    last = max(each.source.last for each in times(file))
    lines = file.text.splitlines()
    number = re.findall(
        r"(?<![\w.])\d+\.\d+|(?<=IOPS=)\d+|(?<=write     )\d+|(?<=read      )\d+", lines[last - 1]
    )[0]
    lines[last - 1] = lines[last - 1].replace(number, "1.2.3", 1)
    with pytest.raises(SpecError, match=rf"{name}, line {last}: .*1\.2\.3"):
        measurements_of(output(name, "\n".join(lines)))


@pytest.mark.parametrize("name", ["nccl_h100.log", "osu_bw.txt", "imb_pingpong.txt", "stream.txt"])
def test_a_row_that_was_cut_off_is_named(output, name):
    file = output(name)
    last = max(each.source.last for each in times(file))
    lines = file.text.splitlines()
    words = (
        2
        if name == "stream.txt"
        else 3
        if name == "imb_pingpong.txt"
        else 6
        if "nccl" in name
        else 1
    )
    lines[last - 1] = "  ".join(lines[last - 1].split()[:words])
    with pytest.raises(SpecError, match=f"{name}, line {last}: a row of results is incomplete"):
        measurements_of(output(name, "\n".join(lines)))


@pytest.mark.parametrize("name", ["hwloc.xml", "fio.json"])
def test_a_file_that_was_cut_off_is_an_error_with_a_line(output, name):
    text = output(name).text
    with pytest.raises(SpecError, match=rf"{name}, line \d+: broken (XML|JSON)"):
        measurements_of(output(name, text[: len(text) // 2]))


def test_what_fio_prints_around_its_json_is_not_read(output):
    text = output("fio.json").text
    around = f"note: both iodepth >= 1 and synchronous I/O engine are selected\n{text}\nfio: terminating\n"
    assert [each.seconds for each in times(output("fio.json", around))] == [
        each.seconds for each in times(output("fio.json"))
    ]
    for cut in ('"fio version" : "fio-3.33"\n', '{\n  "fio version" : "fio-3.33",\n'):
        with pytest.raises(SpecError, match=r"fio\.json, line [12]: broken JSON"):
            measurements_of(output("fio.json", cut))


@pytest.mark.parametrize("name", ["nccl_h100.log", "osu_latency.txt", "imb_pingpong.txt"])
def test_a_size_out_of_range_is_named(output, name):
    file = output(name)
    last = max(each.source.last for each in times(file))
    lines = file.text.splitlines()
    lines[last - 1] = re.sub(r"\d+", "9" * 400, lines[last - 1], count=1)
    with pytest.raises(SpecError, match=f"{name}, line {last}: '9+' must be above 0 and finite"):
        measurements_of(output(name, "\n".join(lines)))


def test_warnings_between_the_rows_of_nccl_are_not_read(output):
    """Of Slurm and NCCL."""
    file = output("nccl_h100.log")
    noise = "[1736.1] node:1:2 [0] NCCL WARN socketProgress: closed by remote peer"
    mixed = file.text.replace("\n", f"\n{noise}\n\n").replace(
        "# nccl-tests version", "srun: job 7 queued\n# nccl-tests version", 1
    )
    assert [(each.terms, each.seconds) for each in times(output(file.name, mixed))] == [
        (each.terms, each.seconds) for each in times(file)
    ]


JUNK = ("", "x", "nan", "inf", "-1", "0", "1e400", "(", "N/A", "-", "0.00", "0x10")


@pytest.mark.parametrize("name", OUTPUTS)
def test_damage_is_an_error_in_words_or_is_not_read(output, name):
    text = output(name).text
    dice = random.Random(name)
    for _ in range(60):
        places = [match.span() for match in re.finditer(r"[\w.]+", text)]
        first, last = dice.choice(places)
        cut = dice.choice([last, len(text), text.find("\n", last)])
        with contextlib.suppress(SpecError):
            measurements_of(output(name, text[:first] + dice.choice(JUNK) + text[cut:]))


def test_a_failed_test_of_nccl_is_no_measurement(output):
    file = output("nccl_h100_allreduce.log")
    text = file.text.replace("482.75       0", "482.75      17")
    with pytest.raises(SpecError, match="line 27: 17 wrong values: the test failed"):
        measurements_of(output("nccl_h100_allreduce.log", text))


def test_entities_are_not_read(output):
    text = output("hwloc.xml").text.replace(
        "<topology", '<!DOCTYPE a [<!ENTITY b "c">]><topology', 1
    )
    with pytest.raises(SpecError, match="entities"):
        measurements_of(output("hwloc.xml", text))


@pytest.mark.parametrize(
    ("text", "seen"), [("hello\n", "begins with 'hello'"), ("", "it is empty")]
)
def test_an_unknown_text_is_an_error_that_lists_the_known_tools(text, seen):
    with pytest.raises(
        SpecError, match=rf"a.txt: no output of a known tool; .*{seen}.*nccl-tests.*SimGrid"
    ):
        measurements_of(File("a.txt", text))


def test_every_measurement_names_lines_that_hold_it(output):
    for name in OUTPUTS:
        file = output(name)
        lines = file.text.splitlines()
        for each in measurements_of(file):
            if not isinstance(each, Note):
                assert each.source.file == name
                assert 1 <= each.source.first <= each.source.last <= len(lines)
