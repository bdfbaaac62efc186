"""A calibration measures its settings, and restores the folder, however it ends."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
from patience import PATIENCE, eventually

from lib_dlhpc.calibration import page_cache, reader
from lib_dlhpc.calibration.fit import fit_io
from lib_dlhpc.calibration.io import (
    KINDS,
    LEAST,
    PARTITION,
    Setting,
    amounts,
    default_settings,
    measure_io,
    without_repeats,
)
from lib_dlhpc.calibration.readers import Readers
from lib_dlhpc.calibration.workspace import PREFIX, CalibrationError, make_files, workspace

TINY = {"seconds": 0.3, "size": LEAST}
SOME = [Setting("file", 4096, 2), Setting("random", 16384, 1), Setting("write", 1 << 20, 2)]


@pytest.fixture
def folder(tmp_path):
    """A folder with an unrelated file."""
    (tmp_path / "mine.txt").write_text("stays")
    return tmp_path


def untouched(folder):
    there = {path.name: path.is_file() and path.read_text() for path in folder.iterdir()}
    return there == {"mine.txt": "stays"}


@pytest.mark.parametrize("state", ["cold", "warm"])
def test_points_hold_what_was_asked_and_nothing_is_left(folder, state):
    way = page_cache.ways()[-1]  # the gentlest: other tests have files in memory too
    if state == "cold" and way == page_cache.NONE:
        pytest.skip("The page cache cannot be dropped here.")
    points = measure_io(folder, state=state, settings=SOME, way=way, **TINY)
    assert [(point.what, point.size, point.readers) for point in points] == [
        (each.what, each.size, each.readers) for each in SOME
    ]
    for point in points:
        assert len(point.seconds) == len(point.samples) == len(point.others) >= 3
        assert min(point.each) > 0
        assert min(point.others) >= 0
        assert point.quantile(0.1) <= point.quantile(0.5) <= point.quantile(0.9)
        assert point.dropped == (way if state == "cold" else "")
    assert untouched(folder)


def test_a_full_calibration_gives_a_tier(folder):
    points = measure_io(
        folder, state="warm", seconds=1, size=LEAST, settings=default_settings([1, 2])
    )
    tier = fit_io(points).tier
    assert tier.bandwidth > 0
    assert 0 < tier.write_bandwidth < 1e12
    assert 0 < 3 * tier.operation_latency + tier.read_latency < 1


@pytest.fixture
def on_disk():
    """A folder on a disk, wherever those of other tests are: what is in memory anyway has no cache to empty."""
    with tempfile.TemporaryDirectory(prefix="dlhpc-", dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.skipif(page_cache.ADVISE not in page_cache.ways(), reason="no posix_fadvise here")
def test_dropping_empties_the_page_cache_of_the_files(on_disk):
    """Seen by preadv2(RWF_NOWAIT), which reads only what is in memory."""
    if not hasattr(os, "RWF_NOWAIT"):
        pytest.skip("This system does not report cached pages.")
    (path,) = make_files(on_disk, {("random", 1): (PARTITION, 1)})["random", 1]

    def in_memory():
        handle = os.open(path, os.O_RDONLY)
        try:
            return os.preadv(handle, [bytearray(4096)], PARTITION // 2, os.RWF_NOWAIT) > 0
        except BlockingIOError:
            return False
        except OSError:
            pytest.skip("This file system does not report cached pages.")
        finally:
            os.close(handle)

    path.read_bytes()
    assert in_memory()
    page_cache.empty(page_cache.ADVISE, [path])
    assert not in_memory()


def test_files_take_the_requested_bytes():
    shape = amounts(300e6, default_settings([1]))
    assert set(shape) == set(KINDS)
    assert 0.9 * 300e6 < sum(size * count for size, count in shape.values()) <= 300e6


def test_nothing_is_read_twice_from_one_empty_cache():
    settings = default_settings([1, 2, 4])
    parts = list(without_repeats(settings))
    assert [each for part in parts for each in part] == settings
    for part in parts:
        assert len({each.kind for each in part}) == len(part)
    assert len(parts) == 4  # one for each number of readers; the second write is by itself


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_whatever_happens_inside_the_files_go(folder, error):
    with pytest.raises(error), workspace(folder, 1e6) as place:
        make_files(place, {("file", 10): (10, 3)})
        assert place.name.startswith(PREFIX)
        raise error
    assert untouched(folder)


WAYS = {"SIGINT": 130, "SIGKILL": -9}  # of all signals: tests/commands/test_ended.py


@pytest.mark.skipif(sys.platform != "linux", reason="signals")
@pytest.mark.parametrize("name", WAYS)
def test_a_cancelled_one_leaves_the_folder_as_it_was(folder, name):
    words = ["calibrate", "io", str(folder), "--seconds", "60", "--warm"]
    child = subprocess.Popen(
        [sys.executable, "-m", "lib_dlhpc.cli", *words], start_new_session=True
    )
    try:
        while not list(folder.glob(f"{PREFIX}*/file-*")):
            assert child.poll() is None
            time.sleep(0.01)
        os.killpg(child.pid, getattr(signal, name))  # as a terminal does, the readers hear it too
        assert child.wait(timeout=PATIENCE) == WAYS[name]
    finally:
        child.kill()
        child.wait()
    eventually(lambda: untouched(folder), what="a folder as it was")


LIMITED = """
    import resource, signal, sys
    from lib_dlhpc.calibration.io import measure_io
    from lib_dlhpc.calibration.workspace import CalibrationError
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    try:
        measure_io(sys.argv[1], state="warm", seconds=1)
    except CalibrationError as error:
        sys.exit(str(error))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of a file's size to be had")
def test_a_write_that_fails_reports_why_and_leaves_nothing(folder):
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), str(folder)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert run.returncode == 1
    assert run.stderr.strip() == f"{folder}: File too large."
    assert untouched(folder)


def test_more_than_is_free_is_refused_before_anything_is_written(folder):
    with pytest.raises(CalibrationError, match=r"free, .* needed; ask for less with --size"):
        measure_io(folder, state="warm", size=1e18)
    assert untouched(folder)


def test_a_folder_that_is_none_is_refused(folder):
    with pytest.raises(CalibrationError, match="no such folder"):
        measure_io(folder / "missing", state="warm")
    with pytest.raises(CalibrationError, match=r"mine\.txt: is not a folder"):
        measure_io(folder / "mine.txt", state="warm")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write")
def test_a_folder_that_may_not_be_written_is_refused():
    with pytest.raises(
        CalibrationError, match=r"/proc/self: (cannot make a folder there|0 B free)"
    ):
        measure_io("/proc/self", state="warm")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seconds": 0}, "seconds = 0: expected a number above 0"),
        ({"seconds": float("inf")}, "seconds = inf"),
        ({"size": 1e6}, r"size = 1 MB: expected at least 50\.3 MB"),
        ({"state": "tepid"}, "state = 'tepid': legal: cold, warm"),
        ({"settings": [Setting("file", 4096, 0)]}, "readers = 0: legal: 1 to 1024"),
    ],
)
def test_values_that_make_no_sense_are_refused(folder, values, message):
    with pytest.raises(CalibrationError, match=message):
        measure_io(folder, **{"state": "warm", **values})
    assert untouched(folder)


def test_where_nothing_can_be_dropped_only_warm_is_measured(folder, monkeypatch):
    monkeypatch.setattr(page_cache, "ways", lambda: (page_cache.NONE,))
    with pytest.raises(CalibrationError, match="only warm reads can be measured here"):
        measure_io(folder, **TINY)
    assert measure_io(folder, state="warm", settings=SOME, **TINY)


def test_a_reader_that_fails_reports_it(tmp_path):
    task = {"what": "stat", "size": 1, "budget": 1.0, "again": False, "paths": []}
    with Readers(1) as pool, pytest.raises(CalibrationError, match="gone: No such file"):
        pool.run([{**task, "places": [str(tmp_path / "gone")]}])


def test_all_readers_count(tmp_path):
    made = make_files(tmp_path, {("file", 10): (10, 6)})["file", 10]
    task = {"what": "file", "size": 10, "budget": 60.0, "again": False, "paths": []}
    with Readers(3) as pool:
        seconds, samples, load = pool.run([{**task, "places": [str(path)]} for path in made[:3]])
        assert samples == 3
        assert seconds > 0
        assert load >= 0
        # Fewer than there are: the others rest.
        assert pool.run([{**task, "places": [str(path) for path in made]}])[1] == 6


def test_a_reader_whose_parent_was_killed_says_nothing(tmp_path):
    script = Path(reader.__file__)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, script], text=True, **pipes) as child:
        child.stdout.close()
        task = {"what": "random", "paths": [str(tmp_path / "missing")]}
        assert child.communicate(json.dumps(task) + "\n", timeout=PATIENCE)[1] == ""
