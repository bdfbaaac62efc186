"""Laws of garbage collection: reachable versions stay intact, the rest is removed, after a kill at any point."""

import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.storage.snapshots import (
    SnapshotError,
    SnapshotStore,
    files,
    garbage_collection,
    open_snapshots,
)


def grown(folder, seed):
    """A store with a tree: branches, tags, shared and unshared chunks, forgotten names."""
    rng = np.random.default_rng(seed)
    store, flat = SnapshotStore(folder), rng.random(20_000)
    for step in range(8):
        start = rng.integers(0, 19_000)
        flat[start : start + rng.integers(1, 3000)] += 1
        branch = str(rng.choice(["main", "a", "b"]))
        store.save({"flat": flat, "step": np.array(step)}, step=step, branch=branch)
        if rng.random() < 0.3:
            store.tag(f"t{step}", int(rng.integers(1, step + 2)))
    for name in ("a", *store.tags.names()[:1]):
        if name in store.branches or name in store.tags:
            store.forget(name)
    return store


def contents(store, ids):
    return {name: {k: a.tobytes() for k, a in store.load(name).items()} for name in ids}


def reached(store, keep_last=None):
    return set(garbage_collection.marked(store, keep_last))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), keep=st.sampled_from([None, 1, 2, 3]))
def test_what_is_reached_stays_and_the_rest_goes(tmp_path_factory, seed, keep):
    store = grown(tmp_path_factory.mktemp("snapshots"), seed)
    everything, wanted = {v.id for v in store.log()}, reached(store, keep)
    before = contents(store, wanted)
    planned = store.gc(keep, dry_run=True)
    assert {v.id for v in store.log()} == everything
    assert store.gc(keep) == planned and {v.id for v in planned.versions} == everything - wanted
    again = open_snapshots(store.folder)
    assert {v.id for v in again.log()} == wanted and contents(again, wanted) == before
    assert again.verify() == []
    needed = {k for v in again.log() for a in v.arrays.values() for k in a.chunks}
    sizes = again.objects.sizes(lambda key: True)
    live = again.objects.sizes(lambda key: key in needed)
    assert all(2 * live[name] > sizes[name] for name in sizes)
    assert again.gc(keep).freed == 0
    for branch in again.branches.names():  # and life goes on
        again.save({"flat": np.zeros(9)}, step=99, branch=branch)
    assert again.verify() == []


class Killed(BaseException):
    """As far as the store can tell."""


@pytest.mark.parametrize("keep", [None, 1])
def test_cut_short_anywhere_nothing_is_lost(tmp_path, monkeypatch, keep):
    grown(tmp_path / "whole", 3)
    wanted = reached(open_snapshots(tmp_path / "whole"), keep)
    before = contents(open_snapshots(tmp_path / "whole"), wanted)
    cuts = 0
    for number in range(1000):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        left = [number]

        def count(*_, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        with monkeypatch.context() as patch:
            for place, name in ((files.os, "replace"), (files.Path, "unlink"), (files.os, "fsync")):
                patch.setattr(place, name, counting(count, getattr(place, name)))
            try:
                open_snapshots(folder).gc(keep)
            except Killed:
                cuts += 1
        store = open_snapshots(folder)
        assert contents(store, wanted) == before
        store.gc(keep)
        assert {v.id for v in store.log()} == wanted and store.verify() == []
        if left[0] >= 0:
            break
        shutil.rmtree(folder)
    assert cuts > 5


def counting(count, real):
    def call(*arguments, **options):
        count()
        return real(*arguments, **options)

    return call


def test_nothing_is_removed_if_references_are_unreadable(tmp_path):
    store = grown(tmp_path, 1)
    head = store.newest("main")
    path = tmp_path / "versions" / f"{head.parent}.json"
    path.write_bytes(path.read_bytes().replace(b"step", b"stop", 1))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SnapshotError, match=rf"version {head.parent[:7]}.*Nothing was removed"):
        open_snapshots(tmp_path).gc()
    with pytest.raises(SnapshotError, match="keep_last = 0"):
        store.gc(0)
    assert sorted(tmp_path.rglob("*")) == before
    open_snapshots(tmp_path).gc(1)  # what is damaged is no longer needed
    assert open_snapshots(tmp_path).verify() == []


def test_a_branch_whose_newest_version_is_missing_stops_the_sweep(tmp_path):
    store = grown(tmp_path, 1)
    (tmp_path / "versions" / f"{store.newest('main').id}.json").unlink()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SnapshotError, match=r"branch main: .*No such file.*Nothing was removed"):
        open_snapshots(tmp_path).gc()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("seed", range(8))
def test_garbage_collection_after_a_kill_removes_nothing_retained(tmp_path, monkeypatch, seed):
    """Killed when the copies were written, and before what they were made from was removed."""
    rng, store = np.random.default_rng(seed), SnapshotStore(tmp_path)
    kept = {"kept": rng.random(5)}
    store.save({"gone": rng.random(500), **kept}, step=1)
    store.save(kept, step=2)

    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(garbage_collection, "remove", killed)
        store.gc(keep_last=1)
    again = SnapshotStore(tmp_path)
    again.gc(keep_last=1)
    assert again.verify() == [] and again.load("main")["kept"].tobytes() == kept["kept"].tobytes()
    assert SnapshotStore(tmp_path).load("main")["kept"].tobytes() == kept["kept"].tobytes()
