"""Laws of snapshots: atomic, refused if of another model, and complete."""

import errno
import os

import numpy as np
import pytest
from crafted_files import LARGE, SAFE, archive, reading, stated
from crafted_files import array as as_array

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.training import snapshot
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.snapshot import FILE, Place, restore, save, state_of

EXPERIMENT = loads("""
[model]
family = "sequential"
input = [1, 4, 4]
layers = [
    { kind = "conv", channels = 2, kernel = 3 }, { kind = "batch_norm" }, { kind = "flatten" },
    { kind = "dense", features = 3 },
]
[dataset]
name = "waves"
[machine]
name = "laptop"
[strategy]
optimizer = "adam"
""")


def run_of(seed=0, dtype=np.float32, experiment=EXPERIMENT):
    """A network and an optimizer in the middle of a run."""
    network = Network(experiment.model, dtype, seed)
    optimizer = Optimizer(experiment.strategy.optimizer, experiment.training)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        network.gradients[...] = rng.normal(size=network.gradients.size)
        optimizer.update(network, 0.01)
    network.statistics[...] = rng.normal(size=network.statistics.size)
    return network, optimizer


def state(network, optimizer):
    arrays = {"weights": network.weights, "statistics": network.statistics, **optimizer.state}
    return {name: array.tobytes() for name, array in arrays.items()}, optimizer.updates


class Rank:
    """One of several emulated ranks: the values of all of them are known in advance."""

    def __init__(self, rank, parts, reported=None):
        self.rank, self.size, self.parts, self.reported = rank, len(parts), parts, reported

    def gather(self, own):
        return self.parts if self.rank == 0 else None

    def bcast(self, stored):
        return dict(stored if self.rank == 0 else self.reported)

    def Barrier(self):
        pass


def test_a_snapshot_restores_bitwise(tmp_path):
    one, other = run_of(0), run_of(1)
    save(tmp_path, SingleRank(), EXPERIMENT, *one, Place(7, 2, 3))
    assert restore(tmp_path, SingleRank(), *other) == Place(7, 2, 3)
    assert state(*one) == state(*other)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_without_a_snapshot_a_run_starts_at_step_0(tmp_path):
    run = run_of()
    before = state(*run)
    assert restore(tmp_path, SingleRank(), *run) == Place(0, 0, 0)
    assert state(*run) == before


@pytest.mark.parametrize("where", ["savez", "fsync", "replace"])
def test_an_interrupted_write_leaves_the_previous_snapshot(tmp_path, monkeypatch, where):
    old = run_of(0)
    save(tmp_path, SingleRank(), EXPERIMENT, *old, Place(1, 0, 1))

    def cut(file, *arguments, **arrays):
        if where == "savez":
            file.write(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(snapshot.np if where == "savez" else os, where, cut)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, SingleRank(), EXPERIMENT, *run_of(1), Place(2, 0, 2))
    again = run_of(2)
    assert restore(tmp_path, SingleRank(), *again) == Place(1, 0, 1)
    assert state(*again) == state(*old)
    # The partial file does no harm.
    save(tmp_path, SingleRank(), EXPERIMENT, *again, Place(3, 0, 3))
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_full_disk_error_names_the_file_and_leaves_nothing_behind(tmp_path, monkeypatch):
    network, optimizer = run_of()
    save(tmp_path, SingleRank(), EXPERIMENT, network, optimizer, Place(7))
    before = (tmp_path / FILE).read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(snapshot.np, "savez", full)
    with pytest.raises(OSError, match=f"No space left on device: .*{FILE}"):
        save(tmp_path, SingleRank(), EXPERIMENT, network, optimizer, Place(8))
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_file_that_is_no_snapshot_is_refused_by_name(tmp_path, share):
    save(tmp_path, SingleRank(), EXPERIMENT, *run_of(), Place())
    path = tmp_path / FILE
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(SpecError, match=FILE):
        restore(tmp_path, SingleRank(), *run_of())
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(SpecError, match=FILE):
        restore(tmp_path, SingleRank(), *run_of())


def test_a_changed_byte_is_noticed(tmp_path):
    save(tmp_path, SingleRank(), EXPERIMENT, *run_of(), Place())
    path = tmp_path / FILE
    broken = bytearray(path.read_bytes())
    broken[broken.index(b"NUMPY") + 130] ^= 1
    path.write_bytes(broken)
    with pytest.raises(SpecError, match="not a readable snapshot"):
        restore(tmp_path, SingleRank(), *run_of())


def test_another_models_snapshot_is_refused(tmp_path):
    save(tmp_path, SingleRank(), EXPERIMENT, *run_of(), Place())
    with pytest.raises(SpecError, match=r"weights: \d+ of float32; the model has \d+ of float64"):
        restore(tmp_path, SingleRank(), *run_of(dtype=np.float64))
    layers = [{"kind": "flatten"}, {"kind": "dense", "features": 3}]
    with pytest.raises(SpecError, match="statistics: 4 of float32; the model has 0"):
        restore(
            tmp_path, SingleRank(), *run_of(experiment=EXPERIMENT.set({"model.layers": layers}))
        )


@pytest.mark.parametrize(
    ("changes", "own"),
    [
        ({"training.normalization": "global"}, set()),
        ({}, {"statistics"}),
        ({"strategy.update": "local"}, {"weights", "statistics", "first", "second"}),
    ],
)
def test_each_rank_restores_its_local_state(tmp_path, changes, own):
    experiment = EXPERIMENT.set(changes)
    runs = [run_of(seed) for seed in range(3)]
    states = [state_of(experiment, *run) for run in runs]
    assert set(states[0][1]) == own and set(states[0][0]) | own == set(state(*runs[0])[0])
    parts = [mine for _, mine in states]
    for rank, run in reversed(list(enumerate(runs))):
        save(tmp_path, Rank(rank, parts), experiment, *run, Place(5, 1, 2))
    with np.load(tmp_path / FILE) as file:
        reported = dict(file)
    for rank, run in enumerate(runs):
        fresh = run_of(9)
        assert restore(tmp_path, Rank(rank, parts, reported), *fresh) == Place(5, 1, 2)
        for name, array in state(*fresh)[0].items():
            assert array == state(*(run if name in own else runs[0]))[0][name]
    fewer = run_of(9)  # another number of ranks: all begin with the mean
    restore(tmp_path, Rank(1, parts[:2], reported), *fewer)
    if own:
        mean = np.mean([run[0].statistics for run in runs], axis=0, dtype=np.float32)
        np.testing.assert_allclose(fewer[0].statistics, mean, rtol=1e-6)


@pytest.mark.parametrize("split", [False, True])
def test_a_snapshot_that_states_more_than_its_file_has_is_refused_in_little_memory(tmp_path, split):
    many = [
        {"place": stated((LARGE // 8,), np.int64, LARGE)},
        {"place": stated((10**13,), np.int64, 32)},
        {"weights": stated((LARGE // 4,), np.float32, LARGE)},
    ]
    whole = "from pathlib import Path; from lib_dlhpc.training.snapshot import read_file as take"
    parts = (
        "from pathlib import Path; from lib_dlhpc.training.snapshot_parts import opened, shapes_in\n"
        "def take(path):\n    with opened(path, None) as source:\n        shapes_in(source)"
    )
    statements = []
    for number, change in enumerate(many):
        members = {"place": as_array(np.zeros(4, np.int64)), "weights": as_array([0.0])}
        path = archive(tmp_path / f"{number}.npz", members | change)
        statements.append(f"take(Path({str(path)!r}))")
    outputs, peak = reading(parts if split else whole, *statements)
    for number, text in enumerate(outputs):
        assert text.startswith(
            f"SpecError {tmp_path / str(number)}.npz: not a readable snapshot"
        ), text
    assert peak < SAFE
