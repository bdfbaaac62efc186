"""Darshan logs: the law of the files is found again, totals are those of the log, and what it cannot tell is said."""

import numpy as np
import pytest

from lib_dlhpc.calibration.imported_machine import import_machine
from lib_dlhpc.cli import main
from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.measurements import File, Note, Timed, measurements_of
from lib_dlhpc.spec.machine import load_machine

LATENCY, BANDWIDTH, OPERATION = 200e-6, 1.5e9, 80e-6
HEADER = "# darshan log version: 3.41\n# nprocs: 4\n# run time: 100.0000\n"
TIER = "storage.scratch"


def record(rank, number, mount="/scratch", **counters):
    """The lines of a file."""
    lines = (
        f"POSIX\t{rank}\t{number}\tPOSIX_{name}\t{value}\t{mount}/{number}.rec\t{mount}\tlustre"
        for name, value in counters.items()
    )
    return "\n".join(lines) + "\n"


def of_law(rank, number, reads, size, **more):
    """A file whose times are those of the law."""
    times = {
        "F_READ_TIME": reads * LATENCY + reads * size / BANDWIDTH,
        "F_META_TIME": 3 * OPERATION,
    }
    counters = {"OPENS": 1, "STATS": 1, "READS": reads, "BYTES_READ": reads * size, "FSYNCS": 0}
    return record(rank, number, **(counters | times | more))


@pytest.fixture
def training():
    """Four processes read files of many sizes."""
    dice = np.random.default_rng(0)
    return HEADER + "".join(
        of_law(number % 4, number, int(dice.integers(1, 50)), 1 << int(dice.integers(8, 24)))
        for number in range(80)
    )


def fitted(text):
    base = {"storage.scratch.bandwidth": "100 GB/s", "storage.scratch.scope": "shared"}
    return import_machine([File("job.txt", text, TIER)], "h100-pod", base)


def note(text):
    (found,) = (
        each.text for each in measurements_of(File("job.txt", text, TIER)) if isinstance(each, Note)
    )
    return found


def test_the_law_of_a_job_is_the_tier_of_the_machine(training):
    found = fitted(training)
    tier = found.machine.storage["scratch"]
    assert tier.read_latency == pytest.approx(LATENCY, rel=1e-3)
    assert tier.reader_bandwidth == pytest.approx(BANDWIDTH, rel=1e-3)
    assert tier.operation_latency == pytest.approx(OPERATION, rel=1e-3)
    assert "Darshan reads" in found.origins[f"{TIER}.read_latency"]


def test_bytes_and_shares_of_the_time_are_those_of_the_files():
    said = note(HEADER + of_law(0, 1, 1000, 10**6, SIZE_READ_100K_1M=1000) + of_law(1, 2, 0, 0))
    share = (1000 * LATENCY + 10**9 / BANDWIDTH) / 400
    for words in ("1 GB of 1 file in 1,000 reads (100% of 100K to 1M B)", "2 opens and 2 stats"):
        assert words in said
    assert f"reads take {share:.2%} of the processes' time" in said
    assert "page cache" in said and "mapped files" in said


def test_the_bandwidth_of_all_readers_is_not_invented(training):
    with pytest.raises(SpecError, match=r"nor h100-pod says storage\.scratch\.bandwidth"):
        import_machine([File("job.txt", training, TIER)], "h100-pod", {})
    assert "scratch" not in load_machine("h100-pod").storage


def test_other_file_systems_are_named_and_left_out(training):
    home = record(0, 999, "/home", READS=9, BYTES_READ=9000, F_READ_TIME=50.0)
    there = fitted(training + home)
    assert there.machine.storage == fitted(training).machine.storage
    assert "/home (lustre) 9 kB read from other file systems" in " ".join(there.notes)


def test_counters_below_zero_and_flushed_files_say_nothing(training):
    odd = of_law(0, 998, -1, 1, F_META_TIME=-0.000003) + of_law(
        1, 997, 0, 0, FSYNCS=2, F_META_TIME=70.0
    )
    assert fitted(training + odd).machine.storage == fitted(training).machine.storage


def test_the_recorded_log_has_its_bandwidth(repository):
    text = (repository / "tests/data/measurements/darshan.txt").read_text("utf-8")
    reads, metadata = (
        each for each in measurements_of(File("a", text, TIER)) if isinstance(each, Timed)
    )
    assert (reads.terms[f"{TIER}.reader_bandwidth"], reads.seconds) == (4202504, (0.078451,))
    assert metadata.terms == {f"{TIER}.operation_latency": 2 * 22 + 4}
    assert "POSIX_READS\t36" in text and "in 36 reads" in note(text)


def test_a_binary_log_is_answered_with_the_command_that_reads_it(tmp_path, capsys):
    (tmp_path / "job.darshan").write_bytes(b"\xff\xfe\x00")
    assert main(["import", "machine", f"{TIER}={tmp_path / 'job.darshan'}"]) == 2
    assert "`darshan-parser" in capsys.readouterr().err


def test_another_number_of_columns_is_named_with_its_line():
    with pytest.raises(SpecError, match=r"job\.txt, line 4: expected 8 columns"):
        measurements_of(File("job.txt", HEADER + "POSIX\t0\t1\tPOSIX_READS\n", TIER))
