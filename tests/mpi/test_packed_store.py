"""A store that ranks hold together: every file from every rank, written files, damage, ranks that are lost."""

from pathlib import Path

import pytest
from numpy.random import default_rng
from patience import PATIENCE

from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.storage import open_store, pack

WORKER = Path(__file__).with_name("packed_store_worker.py")
SIZES = {
    "empty": 0,
    "one": 1,
    "victim": 70_001,
    "large": 300_003,
    "pieces": 9 << 20,
    "ä/☃ name": 4096,
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tree = tmp_path_factory.mktemp("packed") / "tree"
    (tree / "ä").mkdir(parents=True)
    sizes = SIZES | {f"small-{number}": 500 + 811 * number for number in range(40)}
    for name, size in sizes.items():
        (tree / name).write_bytes(default_rng(size).bytes(size))
    (tree / "words").write_bytes(b"words " * 100_000)
    return tree


@pytest.fixture
def run(mpiexec, tree, tmp_path):
    def run(ranks, what, codec="none", change=lambda target: None):
        pack(tree, tmp_path / "store", partitions=5, codec=codec)
        change(tmp_path / "store")
        run = run_to_end(
            ranks, str(WORKER), what, str(tmp_path / "store"), str(tree), patience=PATIENCE
        )
        assert run.returncode == 0 and f"all right on {ranks} ranks" in run.stdout, (
            run.stdout + run.stderr
        )

    return run


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_rank_reads_every_file(run, ranks):
    run(ranks, "every_file", codec="zstd" if ranks == 3 else "none")


@pytest.mark.parametrize(
    "what",
    ["by_hand", "left_behind", "one_node", "while_computing", "written", "failing", "nobody_reads"],
)
def test_on_three_ranks(run, what):
    run(3, what)


def test_forked_processes_of_two_ranks(run):
    run(2, "forked")


def test_a_silent_rank_is_named(run):
    run(2, "silent")


def test_time_in_which_a_rank_itself_was_stopped_is_not_patience(run):
    run(2, "stopped")


def flip(target, name="victim"):
    with open_store(target) as store:
        entry = store.index.entry(store.index.numbers[name])
    path = target / f"partition-{entry.partition:05d}"
    data = bytearray(path.read_bytes())
    data[entry.offset + 35_000] ^= 4
    path.write_bytes(data)


def test_damage_is_seen_from_every_rank(run):
    run(3, "damaged", change=flip)


def test_a_missing_partition_is_reported_on_every_rank(run):
    run(3, "missing", change=lambda target: (target / "partition-00003").unlink())
