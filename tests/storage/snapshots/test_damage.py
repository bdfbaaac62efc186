"""Whatever happens to a store's files or to the process that writes them, nothing wrong is ever loaded."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc.storage.snapshots import SnapshotError, SnapshotStore, open_snapshots

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def store(tmp_path):
    """A small store with two objects, two versions, a branch and a tag."""
    store = SnapshotStore(tmp_path)
    state = {"weights": np.arange(9.0), "place": np.array([1, 2])}
    store.save(state, step=1, metrics={"loss": 0.5}, tags=["first"])
    store.save(state | {"weights": np.arange(9.0) + 1}, step=2)
    return store


def files(store):
    return [path for path in sorted(store.folder.rglob("*")) if path.stat().st_size]


def loaded(folder):
    """What each name gives, or None where it is refused."""
    found = {}
    for name in ("main", "first"):
        try:
            arrays = open_snapshots(folder).load(name)
            found[name] = {key: array.tobytes() for key, array in arrays.items()}
        except SnapshotError as error:
            found[name] = str(error)
    return found


def problems(folder):
    return SnapshotStore(folder).verify()


def test_no_bit_of_any_file_can_change_without_being_noticed(store):
    truth, tried = loaded(store.folder), 0
    for path in files(store):
        if path.is_dir():
            continue
        data = path.read_bytes()
        for at in range(len(data)):
            changed = bytearray(data)
            changed[at] ^= 1 << (at * 5 + len(data)) % 8
            path.write_bytes(changed)
            found = loaded(store.folder)
            assert all(isinstance(got, str) or got == truth[name] for name, got in found.items())
            assert problems(store.folder), (path, at)
            tried += 1
        path.write_bytes(data)
    assert loaded(store.folder) == truth and problems(store.folder) == [] and tried > 1000


def test_a_deprecated_name_of_a_type_is_refused_without_a_warning(store, recwarn):
    changed = [path for path in files(store) if path.is_file() and b'"<f8"' in path.read_bytes()]
    for path in changed:
        path.write_bytes(path.read_bytes().replace(b'"<f8"', b'"<a8"'))
    assert changed and all(isinstance(got, str) for got in loaded(store.folder).values())
    assert problems(store.folder) and not recwarn.list


def test_no_file_can_be_cut_short_without_being_noticed(store):
    truth = loaded(store.folder)
    for path in files(store):
        if path.is_dir():
            continue
        data = path.read_bytes()
        for size in range(len(data)):
            path.write_bytes(data[:size])
            found = loaded(store.folder)
            assert all(isinstance(got, str) or got == truth[name] for name, got in found.items())
            assert problems(store.folder), (path, size)
        path.write_bytes(data + b"\n")
        assert problems(store.folder), path
        path.write_bytes(data)


def test_errors_name_version_array_and_object(store):
    first, second = store.log()
    (key,) = second.arrays["weights"].chunks
    store.objects.refresh()
    spot = store.objects.where[key]
    path = store.folder / "objects" / spot.object
    data = bytearray(path.read_bytes())
    data[spot.offset + 5] ^= 1
    path.write_bytes(data)
    name = rf"version 2 \({second.short}\), weights: object {spot.object}: the 72 B from byte"
    with pytest.raises(SnapshotError, match=name):
        open_snapshots(store.folder).load(2)
    path.write_bytes(data[:60])
    name = rf"version 2 \({second.short}\), weights: .*object {spot.object}: cut short or changed"
    with pytest.raises(SnapshotError, match=name):
        open_snapshots(store.folder).load(2)
    path.unlink()
    with pytest.raises(
        SnapshotError, match=rf"version 2 .*, weights: chunk {key.hex()}: in no object"
    ):
        open_snapshots(store.folder).load(2)
    assert open_snapshots(store.folder).load(1)["weights"][3] == 3
    (store.folder / "versions" / f"{first.id}.json").unlink()
    with pytest.raises(SnapshotError, match=rf"tag first: version {first.short}.*No such file"):
        open_snapshots(store.folder).load("first")


def test_damaged_chunks_are_rewritten(store):
    """A chunk in an object that cannot be read is not there: the next version brings it back."""
    state = store.load(2)
    for path in (store.folder / "objects").iterdir():
        path.write_bytes(path.read_bytes()[:50])
    with SnapshotStore(store.folder) as again:
        again.save(state, step=3)
        assert again.load(3)["weights"].tobytes() == state["weights"].tobytes()
        assert again.load(2)["weights"].tobytes() == state["weights"].tobytes()


@pytest.mark.parametrize("collected", [(), (3, 6)])
def test_a_store_that_is_written_to_is_not_called_damaged(store, monkeypatch, collected):
    """After each look at a folder a version is saved, and garbage is collected now and then."""
    from lib_dlhpc.storage.snapshots import objects, refs, verify

    plain, steps, writer, busy = verify.names, [], SnapshotStore(store.folder), []

    def beside(folder):
        found = plain(folder)
        if not busy:
            busy.append(True)
            steps.append(len(steps) + 3)
            writer.save({"weights": np.arange(9.0) * steps[-1]}, step=steps[-1])
            if len(steps) in collected:
                writer.gc(keep_last=1)
            busy.clear()
        return found

    for module in (verify, refs, objects):
        monkeypatch.setattr(module, "names", beside)
    assert problems(store.folder) == []
    assert len(steps) >= 6
    path = next((store.folder / "objects").glob("[!.]*"))
    path.write_bytes(path.read_bytes()[:-3])
    assert problems(store.folder)  # and what is damaged is


def state_of(step):
    """What the writer below has after so many steps."""
    flat = np.arange(40_000, dtype=np.float64)
    for each in range(1, step + 1):
        advance(flat, each)
    return flat


def advance(flat, step):
    start = step * 997 % 39_000
    flat[start : start + 400] *= 1 + 1 / step


def train_on(folder, tell):
    """Go on from the newest version, save each step and tell of it, until killed; now and then collect garbage."""
    with SnapshotStore(folder) as store:
        newest = store.newest()
        step = int(store.load(newest)["step"]) if newest else 0
        flat = store.load(newest)["flat"].copy() if newest else state_of(0)
        tell(step)
        while True:
            step += 1
            advance(flat, step)
            save = store.save_async if step % 3 else store.save
            save({"flat": flat, "step": np.array(step)}, step=step, metrics={"loss": 1 / step})
            tell(step)
            if step % 7 == 0:
                store.gc(keep_last=3)


def writer(folder, mouth):
    """The child: it never returns."""
    try:
        train_on(folder, lambda step: os.write(mouth, step.to_bytes(8, "little")))
    except BaseException as error:
        print(error, file=sys.stderr)
    os._exit(1)


def heard(ears):
    """Return the next step that the writer tells of."""
    word = os.read(ears, 8)
    assert word, "the writer failed"
    return int.from_bytes(word, "little")


def seconds_of_a_save(folder):
    """The duration of a save, so that kills often hit one."""
    with SnapshotStore(folder) as store:
        begin = time.perf_counter()
        for step in range(1, 9):
            store.save({"flat": state_of(step)}, step=step)
        return (time.perf_counter() - begin) / 8


@posix
def test_after_forty_random_kills_the_newest_version_is_intact_and_resumes(tmp_path):
    draw, usual = random.Random(7), seconds_of_a_save(tmp_path / "other")
    folder, reached, resumed, ruins = tmp_path / "snapshots", 0, [], 0
    for number in range(400):
        if number >= 40 and ruins:
            break  # in memory a save is so short that few kills meet one
        ears, mouth = os.pipe()
        child = os.fork()
        if child == 0:
            writer(folder, mouth)
        os.close(mouth)
        try:
            resumed.append(heard(ears))
            saved = [heard(ears) for _ in range(draw.randrange(4))]
            time.sleep(draw.uniform(0, min(2 * usual, 0.15)))
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the writer failed"
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(ears)
        ruins += len(list(folder.rglob("*.tmp")))
        assert resumed[-1] == reached  # it went on from what was the newest
        store = SnapshotStore(folder)
        newest = store.newest() if (folder / "format").exists() else None
        if newest is None:
            assert not saved[1:]
            continue
        # The last save may still be in flight.
        assert newest.step >= max([reached, *saved[:-1]])
        reached = newest.step
        arrays = store.load(newest)
        assert arrays["step"] == reached
        assert arrays["flat"].tobytes() == state_of(reached).tobytes()
        assert store.verify() == []
    assert reached > 5 and ruins > 0, (reached, ruins)  # it was killed at work
    store.gc()
    assert store.verify() == [] and not list(folder.rglob("*.tmp"))


@posix
@pytest.mark.parametrize("way", ["save", "save_async"])
@pytest.mark.parametrize("size", [20, 40, 400, 5_000, 100_000])
def test_a_full_disk_raises_and_nothing_is_half_published(store, way, size):
    truth, before = loaded(store.folder), contents(store.folder)
    text = limited(size, store.folder, way, {"big": np.random.default_rng(0).random(20_000)})
    assert "step 3 of branch main, array big: " in text and str(store.folder) in text, text
    assert "nothing of this version was published" in text
    assert loaded(store.folder) == truth and problems(store.folder) == []
    assert contents(store.folder) == before


@posix
@pytest.mark.parametrize("way", ["save", "save_async"])
def test_a_disk_that_is_full_after_the_object_leaves_garbage_only(store, way):
    truth, before = loaded(store.folder), contents(store.folder)
    text = limited(150, store.folder, way, {"small": np.array(3.0)})
    assert "step 3 of branch main" in text and "versions/" in text, text
    assert loaded(store.folder) == truth and set(before) < set(contents(store.folder))
    store.gc()
    assert contents(store.folder) == before


def limited(size, folder, way, state):
    """Save in a child with a file size limit; return its error message."""
    ears, mouth = os.pipe()
    child = os.fork()
    if child == 0:
        import resource

        told = b"not told"
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            with SnapshotStore(folder) as own:
                getattr(own, way)(state, step=3)
        except SnapshotError as error:
            told = str(error).encode()
        except BaseException as error:
            told = repr(error).encode()
        os.write(mouth, told)
        os._exit(0)
    os.waitpid(child, 0)
    text = os.read(ears, 10_000).decode()
    os.close(ears)
    os.close(mouth)
    return text


def contents(folder: Path):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_disk_that_is_full_when_the_branch_is_moved_leaves_the_branch(store, monkeypatch):
    from lib_dlhpc.storage.snapshots import refs

    truth = loaded(store.folder)

    def full(path, *rest):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(refs, "write", full)
        with pytest.raises(SnapshotError, match=r"step 3.*branches/main: No space left on device"):
            store.save({"weights": np.zeros(9)}, step=3)
    assert loaded(store.folder) == truth and problems(store.folder) == []
    assert store.save({"weights": np.zeros(9)}, step=3).step == 3
    assert store.gc().versions == ()


@posix
def test_a_second_writer_waits_and_then_raises(store, monkeypatch):
    from lib_dlhpc.storage.snapshots import files as whole

    told = pytest.raises(SnapshotError, match=r"has been writing for")
    with whole.one_writer(store.folder), told, whole.one_writer(store.folder, patience=0.02):
        raise AssertionError("two writers")
    with whole.one_writer(store.folder, patience=0.02):
        pass
