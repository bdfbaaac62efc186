"""The disk thread: reads return the last write, errors name the file, nothing is left behind."""

import errno
import os
import time
from sys import getrefcount

import numpy as np
import pytest

from lib_dlhpc.training import disk as module
from lib_dlhpc.training.disk import Disk


@pytest.fixture
def disk(tmp_path):
    with Disk(tmp_path / "new", "pieces") as one:
        yield one


def test_what_is_read_is_what_was_written_last(disk):
    rng, expected, reads = np.random.default_rng(0), np.zeros(1000), []
    disk.extend(expected.nbytes)
    for _ in range(200):  # no wait between a write and the read of it
        start, stop = np.sort(rng.integers(0, 1001, 2))
        values = rng.normal(size=stop - start)
        expected[start:stop] = values
        disk.write(start * 8, values)
        found = np.full(1000, np.nan)
        reads.append((disk.read(0, found), found, expected.copy()))
    for number, found, then in reads:
        disk.wait(number)
        np.testing.assert_array_equal(found, then)


def test_an_array_belongs_to_the_thread_until_done_and_is_then_released(disk):
    array = np.zeros(100_000)
    before = getrefcount(array)
    disk.wait(disk.write(0, array))
    assert getrefcount(array) == before


def test_more_than_the_system_moves_at_once_is_moved(disk, monkeypatch):
    monkeypatch.setattr(os, "pwritev", lambda f, b, at, right=os.pwritev: right(f, [b[0][:7]], at))
    monkeypatch.setattr(os, "preadv", lambda f, b, at, right=os.preadv: right(f, [b[0][:5]], at))
    values, found = np.arange(100.0), np.zeros(100)
    disk.write(3, values)
    disk.wait(disk.read(3, found))
    np.testing.assert_array_equal(found, values)


def test_its_file_has_no_name(tmp_path):
    with Disk(tmp_path, "pieces") as one:
        one.wait(one.write(0, np.ones(10)))
        assert not list(tmp_path.iterdir())
        assert one.path.parent == tmp_path and one.path.name.startswith("pieces-")


def test_a_read_beyond_the_end_raises_an_error(disk):
    disk.extend(80)
    number = disk.read(40, np.zeros(10))
    with pytest.raises(OSError, match=r"ended after 40 B of 80 B at 40") as caught:
        disk.wait(number)
    assert caught.value.filename == str(disk.path)


def test_a_full_disk_is_raised_by_every_wait_and_close_is_quiet(disk, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", full)
    first = disk.write(0, np.zeros(10))
    second = disk.read(0, np.zeros(10))
    for number in (first, second, first):
        with pytest.raises(OSError, match="No space left on device") as caught:
            disk.wait(number)
        assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(disk.path)


def test_an_error_in_the_thread_is_raised(disk, monkeypatch):
    monkeypatch.setattr(os, "preadv", None)
    with pytest.raises(RuntimeError, match=r"pieces-.*TypeError.*not callable"):
        disk.wait(disk.read(0, np.zeros(1)))


def test_a_dead_thread_is_reported_and_wait_does_not_hang(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOOK", 0.01)
    with Disk(tmp_path, "pieces") as one:
        one._jobs.put(None)  # ends it
        with pytest.raises(RuntimeError, match=r"pieces-.*the thread .* has ended"):
            one.wait(one.write(0, np.zeros(1)))


def test_close_drops_pending_requests(tmp_path, monkeypatch):
    with Disk(tmp_path, "pieces") as one:
        monkeypatch.setattr(os, "pwritev", lambda f, b, at: time.sleep(0.05) or len(b[0]))
        for _ in range(1000):
            one.write(0, np.zeros(1))
    assert one._done == 1000
    one.close()  # closing twice does nothing
    with pytest.raises(RuntimeError, match="closed"):
        one.wait(one.write(0, np.zeros(1)))


def test_a_system_without_preadv_is_refused(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "preadv")
    with pytest.raises(RuntimeError, match="out of core needs a system with preadv"):
        Disk(tmp_path, "pieces")
