"""Laws of emulated ranks: allreduces as in MPI, and where MPI would hang an error names who waits for whom."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import eventually

from lib_dlhpc.labs.emulated.ranks import LabError, Mismatch, Unmet, emulate


@given(ranks=st.integers(1, 6), size=st.integers(0, 5), calls=st.integers(1, 4))
def test_all_ranks_have_the_sum_in_rank_order(ranks, size, calls):
    given = np.random.default_rng(0).normal(size=(ranks, calls, size))

    def program(comm):
        total = np.empty((calls, size))
        requests = [comm.Iallreduce(given[comm.rank, k], total[k]) for k in range(calls)]
        for request in reversed(requests):  # in any order
            request.Wait()
        return total

    for total in emulate(ranks, program):
        np.testing.assert_array_equal(total, np.sum(list(given), axis=0))


def test_all_calls_match_mpi_semantics():
    def program(comm):
        array = np.full(2, float(comm.rank))
        comm.Bcast(array, root=1)
        comm.Barrier()
        reported = comm.allreduce(comm.rank), comm.allgather(comm.rank), comm.gather(comm.rank)
        return [*reported, comm.bcast(comm.rank * 10, root=2), array.tolist()]

    first, *others = emulate(3, program)
    assert first == [3, [0, 1, 2], [0, 1, 2], 20, [1.0, 1.0]]
    assert others == [[3, [0, 1, 2], None, 20, [1.0, 1.0]]] * 2


def test_in_place_is_anything_that_is_no_array():
    def program(comm):
        array = np.full(3, comm.rank + 1.0)
        comm.Allreduce(None, array)  # as MPI.IN_PLACE
        return array.tolist()

    assert emulate(3, program) == [[6.0] * 3] * 3


def test_results_are_nan_before_wait():
    def program(comm):
        total = np.zeros(2)
        request = comm.Iallreduce(np.ones(2), total)
        before = total.copy()
        request.Wait()
        return before, total

    for before, total in emulate(2, program):
        assert np.isnan(before).all() and (total == 2).all()


def test_data_is_sent_as_of_the_call_and_a_change_is_recorded():
    def program(comm):
        send, total = np.ones(2), np.empty(2)
        request = comm.Iallreduce(send, total)
        send *= 3
        request.Wait()
        return total.tolist(), comm.posts[0].changed

    assert emulate(2, program) == [([2.0, 2.0], True)] * 2


def test_a_rank_that_returns_early_is_named_with_those_that_wait():
    def program(comm):
        return comm.allreduce(1) if comm.rank != 2 else None

    with pytest.raises(Unmet, match=r"ranks 0, 1, 3 wait in allreduce.*for rank 2"):
        emulate(4, program)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            lambda comm: comm.allreduce(1) if comm.rank else comm.bcast(1),
            "rank 0 calls bcast where",
        ),
        (
            lambda comm: comm.Allreduce(np.ones(2 + comm.rank), np.ones(2 + comm.rank)),
            "the same count",
        ),
        (lambda comm: comm.Allreduce(np.ones(2), np.ones(3)), "both need the same"),
        (lambda comm: comm.Allreduce(1.0, 2.0), "capital letter"),
        (lambda comm: comm.Allreduce(np.ones((4, 4))[:, 1], np.ones(4)), "contiguous"),
    ],
)
def test_mismatched_calls_are_reported(program, words):
    with pytest.raises(Mismatch, match=words):
        emulate(2, program)


def test_an_unsupported_call_names_the_supported_ones():
    with pytest.raises(LabError, match=r"comm\.Alltoall.*they support Allreduce"):
        emulate(2, lambda comm: comm.Alltoall(1, 2))


def test_a_failed_rank_is_reported_before_those_that_wait_for_it():
    def program(comm):
        if comm.rank == 1:
            raise IndexError("nothing there")
        comm.Barrier()

    with pytest.raises(LabError, match="rank 1 stopped with IndexError: nothing there"):
        emulate(3, program)


def test_allreduces_are_serialized_and_start_when_all_have_called():
    def program(comm):
        comm.spend(1.0 + comm.rank)
        totals = np.empty((2, 4))
        requests = [comm.Iallreduce(np.ones(4), total) for total in totals]
        assert not requests[0].Test()
        comm.spend(100.0)
        assert requests[0].Test() and requests[1].Test()
        return [post.ended for post in comm.posts]

    assert emulate(3, program, lambda size: size / 32) == [[4.0, 5.0]] * 3


def test_what_a_rank_moves_is_counted():
    def program(comm):
        comm.Allreduce(np.ones(10), np.empty(10))
        all_at_once = comm.moved
        comm.allgather(np.ones(10))
        return all_at_once, comm.moved - all_at_once

    assert emulate(3, program) == [(160, 80 + 3 * 80)] * 3


def test_a_loop_that_does_not_end_is_stopped_and_its_rank_named():
    def program(comm):
        while comm.rank == 1:
            pass
        comm.Barrier()

    before = threading.active_count()
    with pytest.raises(LabError, match=r"rank 1 still computes after 0\.2 s"):
        emulate(3, program, patience=0.2)
    eventually(lambda: threading.active_count() <= before, "its end")


def test_polling_for_an_allreduce_terminates():
    def program(comm):
        request, asked = comm.Iallreduce(np.ones(4), np.empty(4)), 0
        while not request.Test():
            asked += 1
        return asked

    assert emulate(2, program, lambda size: 1e-5) == [10, 10]


def test_a_sum_of_one_number_takes_no_time_but_waits_for_all():
    def program(comm):
        comm.spend(float(comm.rank))
        comm.Allreduce(np.ones(1), np.empty(1))
        return comm.now

    assert emulate(3, program, lambda size: 5.0) == [2.0] * 3


def test_arrays_of_other_shapes_and_the_same_size_are_summed():
    def program(comm):
        total = np.empty((2, 3))
        comm.Allreduce([np.arange(8.0), 6], total)
        return total.tolist()

    assert emulate(2, program) == [[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]] * 2


@pytest.mark.parametrize(
    ("send", "receive", "words"),
    [
        (0.5, np.ones(1), "capital letter"),
        (np.ones(2), np.ones(2, int), "float64 and receives 2 of type int"),
    ],
)
def test_what_mpi_would_garble_is_refused(send, receive, words):
    with pytest.raises(Mismatch, match=words):
        emulate(1, lambda comm: comm.Allreduce(send, receive))


def test_one_array_for_both_ends_is_refused_as_mpi_does():
    def program(comm):
        array = np.ones(3)
        comm.Allreduce(array, array[:])

    with pytest.raises(Mismatch, match="IN_PLACE"):
        emulate(2, program)


@given(ranks=st.integers(1, 5), size=st.integers(1, 4))
def test_a_reduce_scatter_and_an_allgather_are_an_allreduce(ranks, size):
    given = np.random.default_rng(0).normal(size=(ranks, ranks * size))

    def program(comm):
        block, total = np.empty(size), np.empty(ranks * size)
        comm.Reduce_scatter_block(given[comm.rank], block)
        comm.Allgather(block, total)
        return total, comm.moved, comm.log

    for total, moved, log in emulate(ranks, program):
        np.testing.assert_array_equal(total, np.sum(list(given), axis=0))
        assert moved == 2 * 8 * size * (1 + ranks)
        assert log == [
            ("Reduce_scatter_block", 8 * size * ranks**2),
            ("Allgather", 8 * size * ranks),
        ]


@pytest.mark.parametrize(
    ("call", "send", "receive", "words"),
    [
        ("Allgather", lambda rank: 2, 3, "4 numbers|2 numbers"),
        ("Allgather", lambda rank: 1 + rank, 2, "rank 1 gives Allgather 2 numbers"),
        ("Reduce_scatter_block", lambda rank: 3, 1, "gives Reduce_scatter_block 3 numbers"),
        (
            "Reduce_scatter_block",
            lambda rank: 2 + 2 * rank,
            1,
            "rank 1 gives Reduce_scatter_block 4",
        ),
    ],
)
def test_parts_that_are_not_a_whole_are_a_mismatch(call, send, receive, words):
    def program(comm):
        getattr(comm, call)(np.ones(send(comm.rank)), np.ones(receive))

    with pytest.raises(Mismatch, match=words):
        emulate(2, program)


@pytest.mark.parametrize(
    ("call", "parts"), [("Allgather", (1, 2)), ("Reduce_scatter_block", (2, 1))]
)
def test_all_ranks_give_as_many_numbers(call, parts):
    def program(comm):
        sizes = [(1 + comm.rank) * part for part in parts]
        getattr(comm, call)(np.ones(sizes[0]), np.ones(sizes[1]))

    with pytest.raises(Mismatch, match=f"to {call} where rank 1 gives"):
        emulate(2, program)
