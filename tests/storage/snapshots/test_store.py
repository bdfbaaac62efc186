"""Laws of the snapshot store: arrays round-trip, equal data is shared, versions form a tree."""

import math
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE

from lib_dlhpc.storage.snapshots import SnapshotError, SnapshotStore, Stream, open_snapshots
from lib_dlhpc.storage.snapshots.chunks import LARGEST, MOST, SMALLEST, chunk_size

TYPES = ["<f4", "<f8", ">f8", "<i8", "|u1", "|b1", "<c16", "<U3", "<f2"]


@st.composite
def states(draw):
    """Arrays of any type and shape, empty ones and single numbers as well, larger than a chunk now and then."""
    names = draw(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=4))
    found = {}
    for name in names:
        dtype = np.dtype(draw(st.sampled_from(TYPES)))
        shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 7, 40]), max_size=3))
        size = math.prod(shape) * dtype.itemsize
        rng = np.random.default_rng(draw(st.integers(0, 9)))
        if dtype.kind == "U":
            found[name] = rng.choice(np.array(["a", "ü", "abc"]), shape).astype(dtype)
        elif dtype.kind == "b":
            found[name] = rng.random(shape) > 0.5
        else:
            found[name] = np.frombuffer(rng.bytes(size), dtype).reshape(shape)
    return found


def same(found, wanted):
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("way", ["save", "save_async"])
@settings(max_examples=25, deadline=None)
@given(history=st.lists(states(), min_size=1, max_size=3))
def test_saved_arrays_round_trip_bit_for_bit(tmp_path_factory, way, history):
    folder = tmp_path_factory.mktemp("snapshots")
    with SnapshotStore(folder) as store:
        saved = [getattr(store, way)(state, step=step) for step, state in enumerate(history)]
    versions = saved if way == "save" else [saving.wait() for saving in saved]
    again = open_snapshots(folder)
    for version, state in zip(versions, history, strict=True):
        same(again.load(version.id), state)
        assert version.size == sum(array.nbytes for array in state.values())
    same(again.load("main"), history[-1])
    assert again.verify() == []


def test_both_ways_of_saving_give_the_same_ids(tmp_path):
    state = {"weights": np.arange(300_000, dtype="<f4"), "place": np.array([1, 2])}
    one, other = SnapshotStore(tmp_path / "a"), SnapshotStore(tmp_path / "b", room=1)
    for step in range(3):
        state["weights"][step] += 1
        first = one.save(state, step=step, metrics={"loss": 1 / (1 + step)})
        second = other.save_async(state, step=step, metrics={"loss": 1 / (1 + step)}).wait()
        assert first.id == second.id and first.written == second.written


def test_an_id_depends_on_content_and_history(tmp_path):
    def ids(number, *states):
        store = SnapshotStore(tmp_path / str(number))
        return [store.save({"x": np.array(s)}, step=n).id for n, s in enumerate(states)]

    assert ids(1, 1.0, 2.0, 3.0) == ids(2, 1.0, 2.0, 3.0)
    one, other = ids(3, 1.0, 2.0, 3.0), ids(4, 1.5, 2.0, 3.0)
    assert not set(one) & set(other)


@pytest.mark.parametrize("parts", [[1], [7, 1, 4096, 3], [100_000], [1024] * 9])
def test_a_stream_is_the_array_that_its_parts_make(tmp_path, parts):
    whole = np.arange(sum(parts), dtype=np.float64)
    pieces = np.split(whole, np.cumsum(parts)[:-1])
    store = SnapshotStore(tmp_path, room=1)
    stream = Stream("x", whole.shape, whole.dtype, iter(pieces))
    one = store.save_async([stream, Stream("y", (0,), np.int8, [])], step=1).wait()
    other = store.save({"x": whole, "y": np.empty(0, np.int8)}, step=1, branch="other")
    assert one == other and [v.id for v in store.log()] == [one.id]
    same(store.load(one), {"x": whole, "y": np.empty(0, np.int8)})


def test_parts_of_another_total_size_are_refused(tmp_path):
    store = SnapshotStore(tmp_path)
    for way in (store.save, lambda *a, **k: store.save_async(*a, **k).wait()):
        with pytest.raises(SnapshotError, match="x: 24 B were given, its shape needs 32 B"):
            way([Stream("x", (4,), np.float64, [np.zeros(3)])], step=1)
    assert store.newest() is None and store.log() == [] and store.verify() == []


@pytest.mark.parametrize("where", [0.0, 0.37, 0.99])
@pytest.mark.parametrize("size", [1 << 20, 40 << 20])
def test_a_change_of_one_percent_writes_at_most_five(tmp_path, where, size):
    store = SnapshotStore(tmp_path)
    flat = np.random.default_rng(0).integers(0, 255, size, np.uint8)
    first = store.save({"weights": flat}, step=1)
    start, before = int(where * size), on_disk(tmp_path)
    flat[start : start + size // 100] ^= 1
    second = store.save({"weights": flat}, step=2)
    assert first.written == size and second.written >= min(size // 100, size - start)
    assert on_disk(tmp_path) - before <= 0.05 * size


def on_disk(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_what_is_equal_is_written_once(tmp_path):
    store = SnapshotStore(tmp_path)
    state = {"a": np.random.default_rng(0).random(50_000), "zeros": np.zeros(1 << 19)}
    first = store.save(state | {"copy of a": state["a"]}, step=1)
    assert first.written <= state["a"].nbytes + chunk_size(state["zeros"].nbytes)
    assert store.save(state, step=2).written == 0
    assert store.save(state, step=3, branch="other", parent=first).written == 0


def test_chunks_grow_with_the_array():
    sizes = [chunk_size(1 << k) for k in range(40)]
    assert sizes == sorted(sizes) and sizes[0] == SMALLEST and sizes[-1] == LARGEST
    assert all(MOST * size >= 1 << k for k, size in enumerate(sizes) if size < LARGEST)


def test_training_may_go_on_while_a_version_is_written(tmp_path):
    state = {"weights": np.arange(3_000_000, dtype=np.float32)}
    wanted = state["weights"].copy()
    with SnapshotStore(tmp_path) as store:
        saving = store.save_async(state, step=1)
        state["weights"].fill(0)
        assert np.array_equal(store.load(saving.wait())["weights"], wanted)
        assert saving.done and saving.copied > 0 and saving.ended > saving.begun


def test_the_copy_is_made_into_the_same_buffers(tmp_path):
    with SnapshotStore(tmp_path) as store:
        for step in range(5):
            store.save_async({"x": np.full(5_000_000, step, np.float32)}, step=step)
        store.close()
        assert store._saver.made <= 6 and store._saver.free.qsize() == store._saver.made


def test_one_save_is_in_flight_and_its_error_is_raised_once_at_the_next_call(tmp_path):
    store = SnapshotStore(tmp_path)
    gate = threading.Event()

    def slow():
        gate.wait(PATIENCE)
        yield np.zeros(3)

    first = store.save_async({"x": np.zeros(3)}, step=1)
    first.wait()
    real = store.objects.add
    store.objects.add = lambda *arguments, **how: (gate.wait(PATIENCE), real(*arguments, **how))[1]
    second = store.save_async({"x": np.ones(3)}, step=2)
    assert not second.done
    settle = second.settle  # which the third calls: only then the gate begins to open
    second.settle = lambda: (threading.Timer(0.05, gate.set).start(), settle())
    third = store.save_async({"x": np.full(3, 2.0)}, step=3)
    assert second.done and third.waited > 0.01
    third.wait()

    def broken(chunks, **how):
        raise OSError(28, "No space left on device", "a file")

    store.objects.add = broken
    failing = store.save_async({"x": np.full(3, 3.0)}, step=4)
    with pytest.raises(SnapshotError, match=r"step 4 of branch main.*No space left on device"):
        store.save_async({"x": np.full(3, 4.0)}, step=5)
    store.objects.add = real
    assert store.save_async({"x": np.full(3, 5.0)}, step=6).wait().parent == third.wait().id
    assert failing.done


def test_a_copy_that_breaks_off_leaves_nothing(tmp_path):
    def broken():
        yield np.zeros(1_000_000)
        raise ZeroDivisionError

    with SnapshotStore(tmp_path, room=1) as store:
        with pytest.raises(ZeroDivisionError):
            store.save_async([Stream("x", (2_000_000,), np.float64, broken())], step=1)
        assert store.newest() is None and on_disk(tmp_path / "objects") == 0
        assert store.save_async({"x": np.zeros(2_000_000)}, step=1).wait().number == 1
        assert store._saver.free.qsize() == store._saver.made


@settings(max_examples=25, deadline=None)
@given(draw=st.data())
def test_a_tree_of_versions_is_what_was_saved(tmp_path_factory, draw):
    """Any order of saving, branching and tagging; each version has the parent that it was saved upon."""
    folder = tmp_path_factory.mktemp("snapshots")
    store, heads, tags, made = SnapshotStore(folder), {}, {}, []
    for step in range(draw.draw(st.integers(1, 8))):
        action = draw.draw(st.sampled_from(["save", "save", "branch", "tag"])) if made else "save"
        if action == "save":
            branch = draw.draw(st.sampled_from(["main", *heads]))
            version = store.save({"x": np.array(step)}, step=step, branch=branch)
            assert version.parent == heads.get(branch, "") and version.branch == branch
            heads[branch] = version.id
            made.append(version)
        else:
            name, at = f"{action}-{step}", draw.draw(st.sampled_from(made))
            getattr(store, action)(name, at.number)
            (heads if action == "branch" else tags)[name] = at.id
    again = open_snapshots(folder)
    assert [v.id for v in again.log()] == [v.id for v in made]
    assert [v.number for v in made] == list(range(1, len(made) + 1))
    assert {name: again.newest(name).id for name in again.branches.names()} == heads
    assert {name: again.tags.get(name) for name in again.tags.names()} == tags
    for version in made:
        assert again.load(version.number)["x"] == version.step
        assert again.version(version.id[:12]) == version
    assert again.verify() == []


def test_names_that_cannot_be_are_refused(tmp_path):
    store = SnapshotStore(tmp_path)
    store.save({"x": np.zeros(1)}, step=1)
    for name in ("", "..", "a/b", "12", ".x", "-x", "ü", "x" * 101, "a\n"):
        with pytest.raises(SnapshotError, match=r"branch .*: expected letters"):
            store.branch(name, 1)
        with pytest.raises(SnapshotError, match="expected letters"):
            store.save({"x": np.zeros(1)}, step=2, tags=[name])
    with pytest.raises(SnapshotError, match="there is a branch main already"):
        store.branch("main", 1)
    store.tag("best", 1)
    store.save({"x": np.ones(1)}, step=2)
    with pytest.raises(SnapshotError, match="tag best is another"):
        store.tag("best", 2)
    for name in ("nobody", "7", "abcdef0"):
        with pytest.raises(SnapshotError, match=f"{name}: no such version"):
            store.load(name)
    with pytest.raises(SnapshotError, match="branch main is at version 2"):
        store.save({"x": np.ones(1)}, step=3, parent=1)
    with pytest.raises(SnapshotError, match="holds no 'y'; it holds x"):
        list(store.chunks(1, "y"))
    with pytest.raises(SnapshotError, match="expected numbers"):
        store.save({"x": np.array([None])}, step=3)
    with pytest.raises(SnapshotError, match="holds no snapshots"):
        open_snapshots(tmp_path / "elsewhere")
    assert len(store.log()) == 2 and store.verify() == []


def test_a_version_is_found_by_what_it_reached(tmp_path):
    store = SnapshotStore(tmp_path)
    for step, accuracy in enumerate([0.5, 0.9, None, math.nan, 0.95]):
        metrics = {"accuracy": accuracy, "loss": 1.0 - step / 10}
        store.save({"x": np.array(step)}, step=step, metrics=metrics)
    numbers = [
        [v.number for v in store.find(*c)] for c in (["accuracy > 0.8"], ["step<=1", "loss=1"])
    ]
    assert numbers == [[2, 5], [1]]
    with pytest.raises(SnapshotError, match=r"no version has a acuracy.*Did you mean 'accuracy'"):
        store.find("acuracy>0.8")
    for nonsense in ("accuracy", "accuracy > high", "> 3"):
        with pytest.raises(SnapshotError, match="expected a condition"):
            store.find(nonsense)
    with pytest.raises(SnapshotError, match="metrics: loss = 'low'"):
        store.save({"x": np.zeros(1)}, step=9, metrics={"loss": "low"})


def test_a_difference_is_the_norm_of_what_changed(tmp_path):
    store = SnapshotStore(tmp_path)
    rng = np.random.default_rng(0)
    one = {
        "w": rng.random(100_000),
        "same": rng.random(9),
        "old": np.ones(3),
        "text": np.array("a"),
    }
    two = one | {"w": one["w"].copy(), "new": np.ones(2), "text": np.array("b")}
    two["w"][:700] += 0.1
    del two["old"]
    store.save(one, step=1)
    store.save(two, step=2)
    rows = {row.name: row for row in store.diff(1, 2)}
    kinds = {name: row.kind for name, row in rows.items()}
    assert kinds == {
        "w": "changed",
        "same": "shared",
        "old": "first only",
        "new": "second only",
        "text": "changed",
    }
    expected = np.linalg.norm(two["w"] - one["w"]) / np.linalg.norm(one["w"])
    assert rows["w"].relative == pytest.approx(expected, rel=1e-12)
    chunk = chunk_size(one["w"].nbytes)
    assert rows["w"].size - rows["w"].shared == -(-700 * 8 // chunk) * chunk
    assert math.isnan(rows["text"].relative) and rows["same"].shared == 72


def test_two_stores_on_one_folder_take_turns(tmp_path):
    stores = [SnapshotStore(tmp_path) for _ in range(4)]

    def work(number):
        for step in range(6):
            array = np.full(2000, 10 * number + step)
            stores[number].save_async({"x": array}, step=step, branch=f"b{number}")
        stores[number].close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = open_snapshots(tmp_path)
    assert sorted(v.number for v in store.log()) == list(range(1, 25)) and store.verify() == []
    assert all(store.load(f"b{n}")["x"][0] == 10 * n + 5 for n in range(4))


@pytest.mark.parametrize("tags", [(), ("kept",)])
def test_a_name_is_given_when_all_that_it_stands_for_is_on_the_disk(tmp_path, monkeypatch, tags):
    store = SnapshotStore(tmp_path / "s")
    store.save({"w": np.zeros(9)}, step=0)
    waiting: set[Path] = set()  # folders with a new name that a power cut would take away
    replace, fsync = os.replace, os.fsync

    def replaced(source, target):
        if Path(target).parent.name in ("branches", "tags"):
            assert not waiting
        replace(source, target)
        waiting.add(Path(target).parent)

    def flushed(handle):
        fsync(handle)
        waiting.difference_update(
            folder for folder in [*waiting] if os.path.samestat(folder.stat(), os.fstat(handle))
        )

    monkeypatch.setattr(os, "replace", replaced)
    monkeypatch.setattr(os, "fsync", flushed)
    store.save({"w": np.ones(9)}, step=1, tags=tags)
    assert not waiting
