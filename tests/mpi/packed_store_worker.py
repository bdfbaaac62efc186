"""On every rank: what test_packed_store.py asks of a store that ranks hold together. argv: what, target, tree."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from lib_dlhpc.storage import open_store, remote
from lib_dlhpc.storage.errors import AlreadyThere, RankLost, StoreError
from lib_dlhpc.storage.mount import mounted

comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
remote.PIECE = 1 << 20  # so that a file of 9 MB is sent in pieces
what, target, tree = sys.argv[1], sys.argv[2], Path(sys.argv[3])


def truth(name):
    return (tree / name).read_bytes()


def shuffled(names, seed):
    return [names[i] for i in np.random.default_rng(seed).permutation(len(names))]


def every_file():
    """Each rank reads all of it, at once with the others, one by one, in batches, ahead, and from threads."""
    for replication in {1, 2, ranks} & set(range(1, ranks + 1)):
        with open_store(target, comm, replication, ranks_per_node=1) as store:
            names = shuffled(store.names, rank)
            assert all(store.read(name) == truth(name) for name in names)
            assert store.read_many(names) == [truth(name) for name in names]
            batches = [names[i : i + 7] for i in range(0, len(names), 7)]
            for batch, found in zip(batches, store.read_ahead(batches, 2), strict=True):
                assert found == [truth(name) for name in batch]
            for found in store.read_ahead(batches, 2):  # requests in flight are abandoned
                assert found == [truth(name) for name in batches[0]]
                break
            wrong = []

            def reader(seed, store=store, names=names, wrong=wrong):
                for name in shuffled(names, seed):
                    if store.read_many([name, name]) != [truth(name)] * 2:
                        wrong.append(name)

            threads = [threading.Thread(target=reader, args=(seed,)) for seed in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not wrong, wrong


def left_behind():
    """Requests without a wait complete before the store closes: later their memory is reused."""
    with open_store(target, comm, ranks_per_node=1) as store:
        part = store.index.columns["partition"]
        far = [
            n
            for n, at in zip(store.names, part, strict=True)
            if rank not in store._reader._place[at]
        ]
        for _ in store.read_ahead([[name] for name in far], len(far)):
            break
        dropped = list(store._peers._dropped)
        assert dropped
    for ticket in dropped:
        assert all(request == MPI.REQUEST_NULL for request in ticket.requests)
    sent = sorted(b"".join(bytes(part) for part in ticket.into) for ticket in dropped)
    assert sent == sorted(filter(None, map(truth, far[1:])))


def by_hand():
    """All on the last rank: everybody else's reads are remote."""
    with open_store(target, comm, ranks_per_node=1) as store:
        parts = len(store.manifest.partitions)
    with open_store(target, comm, place=[[ranks - 1]] * parts) as store:
        assert store.read_many(store.names) == [truth(name) for name in store.names]
    for place, says in (([[ranks]] * parts, "to be on rank"), ([[0]], "entries")):
        try:
            open_store(target, comm, place=place)
        except StoreError as error:
            assert says in str(error)
        else:
            raise AssertionError("not refused")


def one_node():
    """The ranks of this machine share a node: all read all of it, while one of them is stopped."""
    store = open_store(target, comm, patience=1.0)
    pids = comm.allgather(os.getpid())
    if rank == 0:
        os.kill(pids[1], signal.SIGSTOP)
        assert store.read_many(store.names) == [truth(name) for name in store.names]
        os.kill(pids[1], signal.SIGCONT)
    comm.barrier()  # a rank that closes meanwhile would count its patience
    store.close()
    try:
        open_store(target, comm, replication=2)
    except StoreError as error:
        assert "2 copies on 1 node." in str(error), error
    else:
        raise AssertionError("not refused")


def while_computing():
    """Rank 0 computes and never reads; the others read from it meanwhile."""
    with open_store(target, comm, ranks_per_node=1) as store:
        if rank == 0:
            before, matrix = comm.Get_size(), np.ones((300, 300))
            barrier = comm.Ibarrier()
            while not barrier.Test():
                matrix @ matrix
            assert before == ranks
        else:
            assert store.read_many(store.names) == [truth(name) for name in store.names]
            comm.Ibarrier().Wait()


def written():
    with open_store(target, comm, ranks_per_node=1) as store:
        with store.create(f"out/{rank}.bin") as file:
            file.write(bytes([rank]) * (300_000 * rank + 1))
        comm.barrier()
        for other in range(ranks):
            assert store.read(f"out/{other}.bin") == bytes([other]) * (300_000 * other + 1)
        assert store.listdir("out") == sorted(f"{other}.bin" for other in range(ranks))
        comm.barrier()
        try:  # all at once: one of them may
            file = store.create("out/one")
            won = 1
        except AlreadyThere:
            won = 0
        assert comm.allreduce(won) == 1
        if won:
            file.write(b"winner")
            file.close()
        comm.barrier()
        assert store.read("out/one") == b"winner"
        comm.barrier()
    store = open_store(target, comm, ranks_per_node=1)
    late = store.create("late") if rank == 1 else None
    comm.barrier()
    if late:
        expect(store.close, "'late'", "before its store")
        expect(late.close, "'late' is lost")
    else:
        store.close()
    with open_store(target, comm, ranks_per_node=1) as store:
        assert store.read("out/one") == b"winner" and len(store.listdir("out")) == ranks + 1


def damaged():
    """`target` has one flipped bit in its file 'victim': every reader gets an error, wherever it is stored."""
    with open_store(target, comm, ranks_per_node=1) as store:
        for read in (lambda: store.read("victim"), lambda: store.read_many(["small-1", "victim"])):
            try:
                read()
            except StoreError as error:
                assert "'victim' in partition-" in str(error) and "checksum" in str(error), error
            else:
                raise AssertionError("the flipped bit was not seen")
        assert store.read("small-1") == truth("small-1")


def missing():
    """`target` lacks a partition: the error on every rank names it."""
    try:
        open_store(target, comm, ranks_per_node=1)
    except StoreError as error:
        assert "Rank " in str(error) and "partition-" in str(error) and "Lost: '" in str(error), (
            error
        )
    else:
        raise AssertionError("opened without a partition")
    with open_store(target, comm, ranks_per_node=1, rest=True) as store:
        for name in store.names:
            if store.index.columns["partition"][store.index.numbers[name]] == 3:
                expect(lambda name=name: store.read(name), repr(name), "partition-00003")
            else:
                assert store.read(name) == truth(name)


def silent():
    """Rank 1 is stopped: a read that needs it ends with its name, and goes elsewhere if there is a copy."""
    for replication in (1, 2):
        comm.barrier()
        store = open_store(target, comm, replication, patience=1.0, ranks_per_node=1)
        pids = comm.allgather(os.getpid())
        comm.barrier()
        if rank == 0:
            os.kill(pids[1], signal.SIGSTOP)
            started = time.monotonic()
            try:
                found = store.read_many(store.names)
                assert replication == 2 and found == [truth(name) for name in store.names]
            except RankLost as error:
                assert replication == 1 and error.rank == 1, error
                assert "Rank 1 did not answer within 1 s" in str(error), error
                assert "in partition-" in str(error), error
            assert time.monotonic() - started < 20
            os.kill(pids[1], signal.SIGCONT)
        comm.barrier()  # a rank that closes meanwhile would count its patience
        store.close()


def stopped():
    """Rank 1 is stopped while it waits for rank 0, for longer than its patience: rank 0 is not lost for that."""
    store = open_store(target, comm, patience=3.0, ranks_per_node=1)
    pids = comm.allgather(os.getpid())
    if rank == 0:
        with store._peers._engine:  # no answer meanwhile
            comm.barrier()
            time.sleep(0.1)
            os.kill(pids[1], signal.SIGSTOP)
            time.sleep(3.5)
            os.kill(pids[1], signal.SIGCONT)
            time.sleep(0.1)
    else:
        comm.barrier()
        assert store.read_many(store.names) == [truth(name) for name in store.names]
    comm.barrier()
    store.close()


def failing():
    """Rank 1 fails: the others get an error, and none hangs."""
    try:
        with open_store(target, comm, ranks_per_node=1) as store:
            if rank == 1:
                raise KeyError("a mistake of rank 1")
            while True:
                store.read_many(store.names)
    except KeyError:
        assert rank == 1
    except RankLost as error:
        assert error.rank == 1 or error.rank != rank, error
    comm.barrier()


def forked():
    """A forked process reads what its node holds, and gets an error at once for files of other ranks."""

    def in_child(task):
        child = multiprocessing.get_context("fork").Process(target=task)
        child.start()
        child.join(180)
        alive = child.is_alive()
        if alive:
            child.kill()
        assert not alive and child.exitcode == 0, child.exitcode

    def all_of_it():
        assert store.read_many(store.names) == [truth(name) for name in store.names]
        with mounted(store, target + ".here") as here, open(f"{here}/large", "rb") as file:
            assert file.read() == truth("large")
        expect(lambda: store.create("from the child"), "forked process cannot write")

    def own_alone():
        own = [name for name in store.names if store.stat(name).size and lies_here(name)]
        others = [name for name in store.names if store.stat(name).size and not lies_here(name)]
        assert own and others
        assert [store.read(name) for name in own] == [truth(name) for name in own]
        for name in others:
            expect(lambda name=name: store.read(name), "forked process cannot ask rank", "threads")
        expect(lambda: store.read_many(store.names), "forked process cannot ask rank")
        expect(lambda: next(ahead), "forked process cannot ask rank")
        with mounted(store, target + ".here") as here:
            try:
                open(f"{here}/{others[0]}", "rb").close()
            except OSError as error:
                assert "forked process" in str(error), error
            else:
                raise AssertionError("not refused")
        store.close()  # of its own copy: no one else is asked

    def lies_here(name):
        part = store.index.columns["partition"][store.index.numbers[name]]
        return part % ranks == rank

    with open_store(target, comm) as store:
        in_child(all_of_it)
        comm.barrier()
    with open_store(target, comm, ranks_per_node=1) as store:
        ahead = store.read_ahead([store.names] * 3)
        assert next(ahead) == [truth(name) for name in store.names]
        in_child(own_alone)
        assert next(ahead) == [truth(name) for name in store.names]
        ahead.close()
        assert store.read_many(store.names) == [truth(name) for name in store.names]
        comm.barrier()


def expect(call, *says):
    try:
        call()
    except StoreError as error:
        assert all(words in str(error) for words in says), error
    else:
        raise AssertionError("not refused")


def nobody_reads():
    """An open store costs next to nothing: CPU time of all threads while the rank sleeps."""
    with open_store(target, comm, ranks_per_node=1):
        comm.barrier()
        time.sleep(0.2)
        before = time.process_time()
        time.sleep(1)
        spent = time.process_time() - before
        assert spent < 0.2, spent


globals()[what]()
sizes = comm.gather(comm.size)
if rank == 0:
    print(f"all right on {len(sizes)} ranks", flush=True)
