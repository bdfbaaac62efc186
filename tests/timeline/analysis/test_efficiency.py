"""Laws of the efficiencies and of the run on an ideal network, by hand and for any program."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpi_world import LATENCY, Ranks

from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.analysis import analyze, replay

OPS = st.one_of(
    st.tuples(st.just("compute"), st.integers(0, 3), st.floats(1e-6, 1e-2)),
    st.tuples(st.just("message"), st.integers(0, 3), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("together"), st.sampled_from(["MPI_Allreduce", "MPI_Bcast", "MPI_Reduce"])),
)


def run(program, pace=1.0):
    """Play a list of OPS on four ranks; pace 0: on a network without latency, of any bandwidth."""
    world = Ranks(4, lambda *_: pace)
    for rank in range(4):
        world.compute(1e-3, rank)
    for op, *rest in program:
        if op == "compute":
            world.compute(rest[1], rest[0])
        elif op == "message":
            world.message(rest[0], (rest[0] + rest[1]) % 4, 10**6, rest[2])
        else:
            world.together(rest[0], root=0 if rest[0] != "MPI_Allreduce" else -1)
    for rank in range(4):
        world.region(rank, "all of it", 0.0)
    return world


@settings(max_examples=60)
@given(st.lists(OPS, max_size=25))
def test_the_efficiencies_multiply_and_none_is_above_one(program):
    said = analyze(run(program).trace())
    factors = said.efficiency
    parts = (factors.load_balance, factors.serialization, factors.transfer)
    assert all(0 < part <= 1 for part in parts)
    assert factors.parallel == pytest.approx(np.prod(parts))
    assert factors.parallel == pytest.approx(said.compute.mean() / said.span)
    assert factors.communication == pytest.approx(said.compute.max() / said.span)
    assert factors.load_balance == pytest.approx(said.compute.mean() / said.compute.max())


BEHIND = [
    ("together", "MPI_Allreduce"),
    ("compute", 0, 8e-3),
    ("compute", 1, 8e-3),
    ("message", 0, 2, True),
]


@settings(max_examples=60)
@given(st.lists(OPS, max_size=25))
@example(BEHIND)  # rank 1 goes on behind its last call, beside the message of others
def test_the_ideal_run_is_the_program_played_on_an_ideal_network(program):
    """Played again where calls take no time, by the world that made the trace."""
    program = _sent_off(program)
    factors = analyze(run(program).trace()).efficiency
    assert factors.ideal_seconds == pytest.approx(_without_network(program), rel=1e-6)


@settings(max_examples=60)
@given(st.lists(OPS, max_size=25))
def test_a_send_waits_on_an_ideal_network_at_most_where_it_may(program):
    """A trace shows of a send that stood still that it waits, and of no other that it does not."""
    factors = analyze(run(program).trace()).efficiency
    assert factors.ideal_seconds >= _without_network(_sent_off(program)) * (1 - 1e-6)
    assert factors.ideal_seconds <= _without_network(program) * (1 + 1e-6)


def test_a_send_that_stood_still_waits_on_an_ideal_network():
    program = [("compute", 2, 5e-3), ("message", 0, 2, False), ("compute", 0, 4e-3)]
    factors = analyze(run(program).trace()).efficiency
    assert factors.ideal_seconds == pytest.approx(1e-3 + 9e-3)


def _sent_off(program):
    """Return the same program where no send waits for its receiver."""
    return [(*op[:3], True) if op[0] == "message" else op for op in program]


def _without_network(program):
    clock = [1e-3] * 4
    for op, *rest in program:
        if op == "compute":
            clock[rest[0]] += rest[1]
        elif op == "message":
            source, target = rest[0], (rest[0] + rest[1]) % 4
            late = max(clock[source], clock[target])
            # A send that had to wait for its receiver waits on an ideal network too.
            clock[source], clock[target] = (clock[source], late) if rest[2] else (late, late)
        elif rest[0] == "MPI_Bcast":
            clock = [clock[0], *(max(clock[0], each) for each in clock[1:])]
        elif rest[0] == "MPI_Reduce":
            clock = [max(clock), *clock[1:]]
        else:
            clock = [max(clock)] * 4
    return max(clock)


def test_ranks_that_take_turns_lose_by_serialization_alone():
    world = Ranks(2)
    for _ in range(10):
        for rank in (0, 1):
            world.compute(1.0, rank)
            world.message(rank, 1 - rank, 8)
    factors = analyze(world.trace()).efficiency
    assert factors.load_balance == pytest.approx(1.0, abs=0.1)  # nobody saw the first second
    assert factors.serialization == pytest.approx(0.5, rel=0.1)
    assert factors.transfer == pytest.approx(1.0, abs=1e-3)


def test_a_slow_network_costs_transfer_alone():
    world = Ranks(4, lambda *_: 1000.0)
    world.together()
    for _ in range(10):
        world.compute(1.0)
        world.shift(10**9 // 1000)
    factors = analyze(world.trace()).efficiency
    assert factors.load_balance == pytest.approx(1.0) and factors.serialization == pytest.approx(
        1.0
    )
    assert factors.transfer == pytest.approx(10 / (20 + 1000 * 10 * LATENCY), rel=1e-3)


def test_stretches_of_equal_time_never_make_the_network_look_worse(monkeypatch):
    """Where ranks never meet the replay cuts the trace; the ideal run is then at most a little longer."""
    rng = np.random.default_rng(1)
    world = Ranks(4, lambda *_: 30.0)
    for _ in range(300):
        world.compute(rng.uniform(0.5e-3, 1.5e-3, 4).tolist())
        world.shift(1000, int(rng.integers(1, 4)))
    trace = world.trace()
    exact = analyze(trace).efficiency
    monkeypatch.setattr(replay, "LONGEST", 100)
    monkeypatch.setattr(replay, "STRETCH", 60)
    cut = analyze(trace).efficiency
    assert exact.transfer < 0.95
    assert exact.ideal_seconds <= cut.ideal_seconds + 1e-12
    assert cut.ideal_seconds == pytest.approx(exact.ideal_seconds, rel=0.05)


def test_meetings_of_all_cut_the_replay_without_a_trace():
    """An allreduce at the end of every step lets steps be replayed side by side: the sum is the same."""
    rng = np.random.default_rng(2)
    world = Ranks(3, lambda *_: 20.0)
    for _ in range(50):
        world.compute(rng.uniform(0.5e-3, 1.5e-3, 3).tolist())
        world.shift(1000)
        world.compute(rng.uniform(0.5e-3, 1.5e-3, 3).tolist())
        world.together()
    trace = world.trace()
    # Told as of a smaller communicator, the same collectives are no meeting of all.
    name = trace.names.index("MPI_Allreduce")
    split = replace(trace, ranks=4, comm=np.where(trace.name == name, 1, 0).astype(np.int32))
    whole, parts = analyze(trace).efficiency, analyze(split).efficiency
    assert whole.ideal_seconds == pytest.approx(parts.ideal_seconds, rel=1e-9)


def test_exchanges_of_an_engine_are_replayed_as_well():
    """One of two computes 1 s longer, in turns; the exchange takes 2 s: on an ideal network, none."""
    rows = []
    for step in range(6):
        at = 8.0 * step
        for rank in range(2):
            work = 6.0 if step % 2 == rank else 5.0
            rows += [
                (rank, "compute", "backward", "backward", at, at + work),
                (rank, "communication", "communication", "bucket", at + work, at + 8.0, 100),
                (rank, "compute", "wait", "wait", at + work, at + 8.0),
            ]
    factors = analyze(from_rows(rows, 2, "simulated")).efficiency
    assert factors.ideal_seconds == pytest.approx(36.0)
    assert factors.transfer == pytest.approx(36 / 48) and factors.serialization == pytest.approx(
        33 / 36
    )
    assert factors.load_balance == pytest.approx(1.0)


def test_a_send_that_waits_for_its_receiver_does_so_on_an_ideal_network():
    world = Ranks(2)
    world.region(0, "start", 0.0)
    world.compute([1.0, 3.0])
    world.message(0, 1, 10**9, eager=False)
    world.compute(2.0, 0)
    world.region(0, "all of it", 0.0)
    assert analyze(world.trace()).efficiency.ideal_seconds == pytest.approx(5.0)


def test_what_computation_hides_costs_nothing():
    rows = [
        (rank, *row)
        for rank in range(2)
        for row in (
            ("compute", "backward", "backward", 0.0, 5.0),
            ("communication", "communication", "bucket", 1.0, 4.0, 100),
        )
    ]
    assert analyze(from_rows(rows, 2, "simulated")).efficiency.parallel == pytest.approx(1.0)


def test_the_bubble_of_a_pipeline_is_what_an_ideal_network_leaves():
    rows = [
        (0, "compute", "forward", "f", 0.0, 4.0),
        (0, "compute", "bubble", "b", 4.0, 8.0),
        (0, "compute", "wait", "w", 8.0, 10.0),
        (1, "compute", "bubble", "b", 0.0, 4.0),
        (1, "compute", "wait", "w", 4.0, 6.0),
        (1, "compute", "forward", "f", 6.0, 10.0),
    ]
    factors = analyze(from_rows(rows, 2, "simulated")).efficiency
    assert factors.ideal_seconds == pytest.approx(8.0)
    assert (factors.serialization, factors.transfer) == (pytest.approx(0.5), pytest.approx(0.8))
