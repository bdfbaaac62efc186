"""On every rank: versions of a run, restored by any layout and any number of ranks. See test_versions.py."""

import tempfile
from pathlib import Path

from hybrid_worker import difference, experiment_of, layouts, one_rank
from mpi4py import MPI

from lib_dlhpc.storage.snapshots import SnapshotStore
from lib_dlhpc.storage.snapshots.plan import Plan, write_plan
from lib_dlhpc.training.trainer import train

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
STEPS = 2  # of an epoch


def folder_of(plan):
    """A run folder that all ranks know."""
    folder = Path(comm.bcast(tempfile.mkdtemp() if rank == 0 else None))
    if rank == 0:
        write_plan(folder, plan)
    comm.Barrier()
    return folder


def begin(folder, number, name):
    """A run folder on a branch that begins at a version."""
    other = folder_of(Plan(1, name, str(folder / "snapshots")))
    if rank == 0:
        SnapshotStore(folder / "snapshots").branch(name, number)
    comm.Barrier()
    return other


def near(store, version, expected, within=1e-10):
    """Whether a version equals that of one rank, up to the order of sums."""
    arrays = store.load(version)
    for array in ("weights", "first", "second", "place"):
        off = difference(arrays[array], expected[array])
        assert off <= within, (version, array, off)


def any_layout_resumes_from_any_other():
    """Each layout begins at a version of the one before; and one rank at that of all."""
    for name in ("words", "images"):
        ways = [split for model, split in layouts() if model == name]
        folder, number = folder_of(Plan(1)), 0
        for way, split in enumerate(ways):
            epochs = way + 0.5  # within an epoch
            changes = {"optimizer": "adam", "epochs": epochs}
            train(experiment_of(name, devices_per_node=p, **changes, **split), comm, folder)
            if rank == 0:
                train(
                    experiment_of(name, **changes | {"epochs": epochs + 0.5}), MPI.COMM_SELF, folder
                )
            comm.Barrier()
            number += STEPS
        expected = one_rank(name, optimizer="adam", epochs=float(len(ways)))
        if rank == 0:
            store = SnapshotStore(folder / "snapshots")
            versions = store.log()
            assert [v.step for v in versions] == list(range(1, STEPS * len(ways) + 1))
            near(store, versions[-1], expected[1])
            assert store.verify() == []


def any_version_can_be_resumed():
    """A tree: from each version another layout continues, on a branch, to the same result."""
    for name in ("words", "images"):
        ways = [split for model, split in layouts() if model == name]
        changes = {"optimizer": "adam", "epochs": 1.5}
        folder = folder_of(Plan(1))
        train(experiment_of(name, devices_per_node=p, **changes, **ways[0]), comm, folder)
        for number in (1, 2):
            other = begin(folder, number, f"from-{number}")
            split = ways[number % len(ways)]
            train(experiment_of(name, devices_per_node=p, **changes, **split), comm, other)
        expected = one_rank(name, **changes)
        if rank == 0:
            store = SnapshotStore(folder / "snapshots")
            assert store.newest("from-1").step == store.newest("main").step == 3
            for branch in ("main", "from-1", "from-2"):
                near(store, branch, expected[1])


def the_same_ranks_give_the_same_bits():
    """The versions of a resumed run equal those of an uninterrupted one: same ids, so same bits."""
    ways = [({}, "rows"), ({"zero": 1}, "words"), ({"pipeline": p}, "images")]
    ways += [({"normalization": "local"}, "images")]
    for split, name in ways:
        experiment = experiment_of(
            name, devices_per_node=p, optimizer="adam", precision="fp32", epochs=2, **split
        )
        folder = folder_of(Plan(1))
        train(experiment, comm, folder)
        store = SnapshotStore(folder / "snapshots")
        wanted = [version.id for version in store.log()]
        assert len(wanted) == 2 * STEPS
        for number in (1, 2, 3):
            train(experiment, comm, begin(folder, number, f"from-{number}"))
            comm.Barrier()
            assert [version.id for version in store.log()] == wanted, (name, split, number)
            assert store.newest(f"from-{number}").id == wanted[-1]
            comm.Barrier()


def fewer_ranks_restore_the_mean_of_local_state():
    """Running statistics of p ranks are restored by one rank as their mean."""
    folder = folder_of(Plan())
    changes = {"normalization": "local", "epochs": 1}
    train(experiment_of("images", devices_per_node=p, **changes), comm, folder)
    if rank == 0:
        store = SnapshotStore(folder / "snapshots")
        rows = store.load("main")["own.statistics"]
        assert rows.shape[0] == p
        more = changes | {"epochs": 1.5}
        run = train(experiment_of("images", **more), MPI.COMM_SELF, folder)
        assert run.samples == 24 and store.newest().step == STEPS + 1


if __name__ == "__main__":
    # Each on few ranks and on more: what differs between three and four is the number of layouts.
    checks = [any_layout_resumes_from_any_other] if p in (2, 4) else []
    checks += [any_version_can_be_resumed] if p in (2, 3) else []
    checks += [the_same_ranks_give_the_same_bits] if p in (1, 3) else []
    checks += [fewer_ranks_restore_the_mean_of_local_state] if p in (3, 4) else []
    for check in checks:
        begun = MPI.Wtime()
        check()
        comm.Barrier()
        if rank == 0:
            print(f"{check.__name__}: {MPI.Wtime() - begun:.1f} s", flush=True)
    sizes = comm.gather(comm.size)
    if rank == 0:
        print(f"all right on {len(sizes)} ranks")
