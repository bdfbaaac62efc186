"""Laws of messages between emulated ranks: delivery as in MPI, and where MPI may hang, an error names the ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from lib_dlhpc.labs.emulated.ranks import emulate
from lib_dlhpc.labs.mistakes import LabError, Mismatch, Unmet


def right(comm):
    return (comm.rank + 1) % comm.size


def left(comm):
    return (comm.rank - 1) % comm.size


@pytest.mark.parametrize("way", ["Isend", "Irecv", "Sendrecv", "isend", "irecv", "sendrecv"])
@given(ranks=st.integers(1, 5))
def test_a_shift_brings_what_the_left_one_has(way, ranks):
    def program(comm):
        own, room = np.full(3, float(comm.rank)), np.zeros(3)
        to, of = right(comm), left(comm)
        if way == "Isend":
            request = comm.Isend(own, to)
            comm.Recv(room, of)
            request.Wait()
        elif way == "Irecv":
            request = comm.Irecv(room, source=of)
            comm.Send([own, MPI.DOUBLE], dest=to)
            request.wait()
        elif way == "Sendrecv":
            comm.Sendrecv(own, to, recvbuf=room, source=of)
        elif way == "isend":
            request = comm.isend(own, to)
            room = comm.recv(source=of)
            request.wait()
        elif way == "irecv":
            request = comm.irecv(source=of)
            comm.send(own, to)
            room = request.wait()
        else:
            room = comm.sendrecv(own, to, source=of)
        return room.tolist()

    assert emulate(ranks, program) == [[float((r - 1) % ranks)] * 3 for r in range(ranks)]


def test_messages_of_one_sender_arrive_in_order_and_by_their_tags():
    def program(comm):
        if comm.rank == 0:
            for tag in (5, 7, 5):
                comm.isend((tag, len(comm.messages)), 1, tag)
            return None
        return [comm.recv(source=0, tag=tag) for tag in (7, None, 5)]

    assert emulate(2, program)[1] == [(7, 1), (5, 0), (5, 2)]


def test_what_is_sent_is_what_it_was_and_what_arrives_is_there_after_the_wait():
    def program(comm):
        array = np.arange(4.0)
        if comm.rank == 0:
            request = comm.Isend(array, 1)
            array += 10
            request.Wait()
            return comm.messages[0].changed
        request = comm.Irecv(array, 0)
        before = array.copy()
        request.Wait()
        return before, array

    changed, (before, after) = emulate(2, program)
    assert changed and np.isnan(before).all() and after.tolist() == [0, 1, 2, 3]


def test_proc_null_is_the_partner_at_the_boundary():
    def program(comm):
        room = np.full(1, 9.0)
        after = comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL
        before = comm.rank - 1 if comm.rank else MPI.PROC_NULL
        comm.Sendrecv(np.ones(1), after, recvbuf=room, source=before)
        return room[0], comm.moved

    assert emulate(3, program) == [(9.0, 8), (1.0, 16), (1.0, 8)]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda comm: comm.recv(source=1 - comm.rank), "rank 0 waits in recv from rank 1; rank 1"),
        (
            lambda comm: (comm.send(0, 1 - comm.rank), comm.recv(source=1 - comm.rank)),
            "rank 1 waits in send to rank 0, which .* no rank can continue.* Isend never blocks",
        ),
        (lambda comm: comm.rank or comm.recv(source=1), "recv from rank 1; rank 1 returned"),
        (
            lambda comm: comm.barrier() if comm.rank else comm.recv(source=1, tag=3),
            r"recv from rank 1 \(tag 3\); rank 1 waits in Barrier, call number 1",
        ),
        (lambda comm: comm.recv(source=1 - comm.rank) if comm.rank else 1 / 0, "rank 0 stopped"),
        (
            lambda comm: comm.rank or comm.isend(1, 1),
            "rank 0 sent rank 1 a message that is never received",
        ),
    ],
)
def test_a_deadlock_names_who_waits_for_whom_at_once(program, words):
    with pytest.raises(LabError, match=words):
        emulate(2, program, patience=60.0)


def test_a_rank_that_is_served_is_not_stuck():
    def program(comm):
        if comm.rank < 2:
            return comm.sendrecv(comm.rank, 1 - comm.rank, source=1 - comm.rank)
        return comm.recv(source=0)

    with pytest.raises(Unmet, match="rank 2 waits in recv from rank 0; ranks 0, 1 returned"):
        emulate(3, program)


@pytest.mark.parametrize(
    ("send", "receive", "words"),
    [
        (
            lambda c: c.Isend(np.ones(4), 1),
            lambda c: c.Recv(np.ones(3), 0),
            "4 numbers.* room for 3",
        ),
        (lambda c: c.Isend(np.ones(4), 1), lambda c: c.Recv(np.ones(4, "f4"), 0), "type float64"),
        (lambda c: c.isend(1, 1), lambda c: c.Recv(np.ones(4), 0), "of the other kind"),
        (lambda c: c.Isend(1.0, 1), lambda c: None, "capital letter"),
        (lambda c: c.isend(1, 7), lambda c: None, "calls isend to rank 7: valid ranks are 0 to 1"),
        (lambda c: None, lambda c: c.recv(), "pass source"),
    ],
)
def test_mismatched_messages_raise(send, receive, words):
    with pytest.raises(LabError, match=words):
        emulate(2, lambda comm: receive(comm) if comm.rank else send(comm))


def test_less_than_there_is_room_for_is_received_as_mpi_does():
    def program(comm):
        room = np.zeros((2, 2))
        return room.tolist() if comm.Sendrecv(np.ones(1), 0, recvbuf=room, source=0) is None else 0

    assert emulate(1, program) == [[[1.0, 0.0], [0.0, 0.0]]]
    assert issubclass(Mismatch, LabError)


@pytest.mark.parametrize(
    "pack", [bytes, bytes.hex, lambda data: int.from_bytes(data), lambda data: {"x": [data.hex()]}]
)
def test_numbers_cost_their_bytes_whatever_they_are_packed_in(pack):
    data = np.random.default_rng(0).standard_normal(100).tobytes()

    def program(comm):
        comm.sendrecv(pack(data), right(comm), source=left(comm))
        return comm.moved

    assert min(emulate(2, program)) >= 2 * len(data) - 2  # an integer has no leading zeros
