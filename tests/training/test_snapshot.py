"""Laws of snapshots: whole or not there, refused if another's, and all that the next step depends on."""

import errno
import os

import numpy as np
import pytest
from crafted import LARGE, SAFE, archive, reading, stated
from crafted import array as as_array

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.training import snapshot
from lib_dlhpc.training.alone import Alone
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
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
    """A network and an optimiser in the middle of something."""
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
    """One of several ranks that take turns: what all of them have is known beforehand."""

    def __init__(self, rank, parts, told=None):
        self.rank, self.size, self.parts, self.told = rank, len(parts), parts, told

    def gather(self, own):
        return self.parts if self.rank == 0 else None

    def bcast(self, stored):
        return dict(stored if self.rank == 0 else self.told)

    def Barrier(self):
        pass


def test_what_is_saved_comes_back_to_the_last_bit(tmp_path):
    one, other = run_of(0), run_of(1)
    save(tmp_path, Alone(), EXPERIMENT, *one, Place(7, 2, 3))
    assert restore(tmp_path, Alone(), *other) == Place(7, 2, 3)
    assert state(*one) == state(*other)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_without_a_snapshot_a_run_is_at_its_start(tmp_path):
    run = run_of()
    before = state(*run)
    assert restore(tmp_path, Alone(), *run) == Place(0, 0, 0)
    assert state(*run) == before


@pytest.mark.parametrize("where", ["savez", "fsync", "replace"])
def test_a_snapshot_cut_short_leaves_the_one_before(tmp_path, monkeypatch, where):
    old = run_of(0)
    save(tmp_path, Alone(), EXPERIMENT, *old, Place(1, 0, 1))

    def cut(file, *arguments, **arrays):
        if where == "savez":
            file.write(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(snapshot.np if where == "savez" else os, where, cut)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, Alone(), EXPERIMENT, *run_of(1), Place(2, 0, 2))
    again = run_of(2)
    assert restore(tmp_path, Alone(), *again) == Place(1, 0, 1)
    assert state(*again) == state(*old)
    save(tmp_path, Alone(), EXPERIMENT, *again, Place(3, 0, 3))  # the ruins are in nobody's way
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_full_disk_is_told_by_file_and_nothing_is_left_of_the_try(tmp_path, monkeypatch):
    network, optimizer = run_of()
    save(tmp_path, Alone(), EXPERIMENT, network, optimizer, Place(7))
    before = (tmp_path / FILE).read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(snapshot.np, "savez", full)
    with pytest.raises(OSError, match=f"No space left on device: .*{FILE}"):
        save(tmp_path, Alone(), EXPERIMENT, network, optimizer, Place(8))
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_what_is_no_snapshot_is_refused_by_name(tmp_path, share):
    save(tmp_path, Alone(), EXPERIMENT, *run_of(), Place())
    path = tmp_path / FILE
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(SpecError, match=FILE):
        restore(tmp_path, Alone(), *run_of())
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(SpecError, match=FILE):
        restore(tmp_path, Alone(), *run_of())


def test_a_changed_byte_is_noticed(tmp_path):
    save(tmp_path, Alone(), EXPERIMENT, *run_of(), Place())
    path = tmp_path / FILE
    broken = bytearray(path.read_bytes())
    broken[broken.index(b"NUMPY") + 130] ^= 1
    path.write_bytes(broken)
    with pytest.raises(SpecError, match="not a snapshot that can be read"):
        restore(tmp_path, Alone(), *run_of())


def test_another_models_snapshot_is_refused(tmp_path):
    save(tmp_path, Alone(), EXPERIMENT, *run_of(), Place())
    with pytest.raises(SpecError, match=r"weights: \d+ of float32; the model has \d+ of float64"):
        restore(tmp_path, Alone(), *run_of(dtype=np.float64))
    layers = [{"kind": "flatten"}, {"kind": "dense", "features": 3}]
    with pytest.raises(SpecError, match="statistics: 4 of float32; the model has 0"):
        restore(tmp_path, Alone(), *run_of(experiment=EXPERIMENT.set({"model.layers": layers})))


@pytest.mark.parametrize(
    ("changes", "own"),
    [
        ({"training.normalisation": "global"}, set()),
        ({}, {"statistics"}),
        ({"strategy.update": "local"}, {"weights", "statistics", "first", "second"}),
    ],
)
def test_each_rank_gets_back_what_was_its_own(tmp_path, changes, own):
    experiment = EXPERIMENT.set(changes)
    runs = [run_of(seed) for seed in range(3)]
    states = [state_of(experiment, *run) for run in runs]
    assert set(states[0][1]) == own and set(states[0][0]) | own == set(state(*runs[0])[0])
    parts = [mine for _, mine in states]
    for rank, run in reversed(list(enumerate(runs))):
        save(tmp_path, Rank(rank, parts), experiment, *run, Place(5, 1, 2))
    with np.load(tmp_path / FILE) as file:
        told = dict(file)
    for rank, run in enumerate(runs):
        fresh = run_of(9)
        assert restore(tmp_path, Rank(rank, parts, told), *fresh) == Place(5, 1, 2)
        for name, array in state(*fresh)[0].items():
            assert array == state(*(run if name in own else runs[0]))[0][name]
    fewer = run_of(9)  # another number of ranks: all begin with the mean
    restore(tmp_path, Rank(1, parts[:2], told), *fewer)
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
    whole = "from pathlib import Path; from lib_dlhpc.training.snapshot import _read as take"
    parts = (
        "from pathlib import Path; from lib_dlhpc.training.snapshot_parts import _opened, _about\n"
        "def take(path):\n    with _opened(path, None) as source:\n        _about(source)"
    )
    statements = []
    for number, change in enumerate(many):
        members = {"place": as_array(np.zeros(4, np.int64)), "weights": as_array([0.0])}
        path = archive(tmp_path / f"{number}.npz", members | change)
        statements.append(f"take(Path({str(path)!r}))")
    said, peak = reading(parts if split else whole, *statements)
    for number, text in enumerate(said):
        assert text.startswith(f"SpecError {tmp_path / str(number)}.npz: not a snapshot"), text
    assert peak < SAFE
