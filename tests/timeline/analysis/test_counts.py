"""Laws of the matrix, the message sizes, time by region, and the critical path of calls."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi_world import Ranks

from lib_dlhpc import SpecError
from lib_dlhpc.timeline import critical_path, from_rows
from lib_dlhpc.timeline.analysis import analyze
from lib_dlhpc.timeline.analysis.communication_matrix import matrix
from lib_dlhpc.timeline.analysis.regions import regions
from lib_dlhpc.timeline.spans import in_order


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 2**40)), max_size=30)
)
def test_every_message_is_counted_once(messages):
    world = Ranks(5)
    for source, far, size in messages:
        world.message(source, (source + far) % 5, size)
    result = matrix(in_order(world.trace()))
    bytes_of, count = np.zeros((2, 5, 5), np.int64)
    sizes = {}
    for source, far, size in messages:
        bytes_of[source, (source + far) % 5] += size
        count[source, (source + far) % 5] += 1
        sizes[size.bit_length()] = sizes.get(size.bit_length(), 0) + 1
    np.testing.assert_array_equal(result.bytes, bytes_of)
    np.testing.assert_array_equal(result.messages, count)
    assert {k: n for k, n in enumerate(result.histogram.tolist()) if n} == sizes


def test_collectives_and_messages_under_way_are_reported_apart():
    rows = [
        (0, "communication", "communication", "bucket 1", 0.0, 1.0, 100),
        (1, "communication", "communication", "bucket 1", 0.0, 1.0, 100),
        (0, "communication", "communication", "round 0", 0.0, 0.5, 50, 1),
        (1, "communication", "collective", "MPI_Barrier", 1.0, 2.0, 0, -1, 0, 7),
    ]
    result = matrix(from_rows(rows, 2, "simulated"))
    assert result.bytes.tolist() == [[0, 50], [0, 0]]
    assert result.collective_bytes.tolist() == [100, 100]
    assert result.collective_calls.tolist() == [1, 2]


def test_too_many_ranks_for_a_matrix_are_refused():
    row = (0, "compute", "region", "main", 0.0, 1.0)
    with pytest.raises(SpecError, match="100000 ranks"):
        matrix(from_rows([row], 100_000, "measured"))


@st.composite
def nests(draw, begin=0, end=64, depth=0):
    """Names and whole seconds of regions within each other."""
    found = []
    at = begin
    while at < end and depth < 5:
        start = draw(st.integers(at, end))
        stop = draw(st.integers(start, end))
        if stop == start:
            break
        found.append((draw(st.sampled_from("abc")), start, stop))
        found += draw(nests(start, stop, depth + 1))
        at = stop
    return found


@given(st.lists(nests(), min_size=1, max_size=3))
def test_time_by_region_is_that_of_a_clock(programs):
    """Second by second: whoever was entered last owns it; a name is on while it is anywhere on the stack."""
    rows = [
        (rank, "compute", "region", name, float(start), float(stop))
        for rank, program in enumerate(programs)
        for name, start, stop in program
    ]
    ranks = len(programs)
    result = regions(in_order(from_rows(rows, ranks, "measured")))
    owns, on = np.zeros((2, 3, ranks))
    for rank, program in enumerate(programs):
        for second in range(64):
            stack = [name for name, start, stop in program if start <= second < stop]
            if stack:
                owns["abc".index(stack[-1]), rank] += 1
            for name in set(stack):
                on["abc".index(name), rank] += 1
    for k, name in enumerate("abc"):
        if name in result.names:
            at = result.names.index(name)
            np.testing.assert_allclose(result.exclusive[at], owns[k])
            np.testing.assert_allclose(result.inclusive[at], on[k])
        else:
            assert not on[k].any()


def test_calls_lie_within_the_regions_they_are_made_in():
    world = Ranks(2)
    world.compute(2.0, 0)
    world.compute(1.0, 1)
    world.together()
    for rank in range(2):
        world.region(rank, "solve", 0.0)
    result = analyze(world.trace()).regions
    at = result.names.index("solve")
    np.testing.assert_allclose(result.exclusive[at], [2.0, 1.0])
    np.testing.assert_allclose(result.inclusive[at], np.full(2, world.clock[0]))


def test_what_an_accelerator_does_lies_in_nothing_of_its_host():
    """A host launches and waits; kernels run meanwhile, two of them side by side, and an exchange beside both."""
    rows = [
        (0, "host", "region", "step", 0.0, 10.0),
        (0, "host", "region", "launch", 1.0, 2.0),
        (0, "compute", "region", "long kernel", 1.5, 6.0),
        (0, "compute", "region", "other kernel", 5.0, 8.0),
        (0, "communication", "collective", "allreduce", 5.5, 7.0),
        (1, "compute", "region", "step", 0.0, 10.0),
        (1, "communication", "collective", "allreduce", 5.5, 7.0),
    ]
    result = analyze(from_rows(rows, 2, "measured")).regions
    own = {
        (name, rank): result.exclusive[k, rank]
        for k, name in enumerate(result.names)
        for rank in range(2)
    }
    assert own["step", 0] == pytest.approx(9.0) and own["launch", 0] == pytest.approx(1.0)
    assert own["long kernel", 0] == pytest.approx(4.5)
    assert own["other kernel", 0] == pytest.approx(3.0)
    assert own["allreduce", 0] == pytest.approx(1.5)
    assert own["step", 1] == pytest.approx(8.5), "where there is no host, calls lie within regions"


def test_any_order_of_rows_says_the_same():
    world = Ranks(4)
    for step in range(10):
        world.compute([0.01, 0.02, 0.01, 0.01])
        world.shift(1000 + step)
        world.together()
    trace = world.trace()
    shuffled = trace.select(np.random.default_rng(0).permutation(len(trace)))
    one, other = analyze(trace), analyze(shuffled)
    assert one.findings == other.findings and one.efficiency == other.efficiency
    assert list(one.path) == list(other.path)


def test_the_critical_path_of_calls_fills_the_run_and_follows_who_is_late():
    """Rank 1 is late for the message, then rank 0 for the collective: both are on the path when they are."""
    world = Ranks(2)
    for rank in range(2):
        world.region(rank, "start", 0.0)
    world.compute([1.0, 3.0])
    world.message(1, 0, 1000)
    world.compute([5.0, 1.0])
    world.together()
    world.compute([1.0, 2.0])
    for rank in range(2):
        world.region(rank, "all of it", 0.0)
    path = critical_path(world.trace())
    result = [(event.rank, event.name) for event in path]
    assert result == [
        (1, "computation"),
        (0, "MPI_Recv"),
        (0, "computation"),
        (1, "MPI_Allreduce"),
        (1, "computation"),
    ]
    assert (path.start[1:] == path.stop[:-1]).all()
    assert (path.stop - path.start).sum() == pytest.approx(max(world.clock))


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), min_size=1, max_size=20
    )
)
def test_the_critical_path_of_calls_never_has_a_gap(messages):
    world = Ranks(4)
    world.compute([1.0, 2.0, 3.0, 4.0])
    for number, (source, far, eager) in enumerate(messages):
        world.message(source, (source + far) % 4, 1000, eager)
        world.compute(0.5, number % 4)
    for rank in range(4):
        world.region(rank, "all of it", 0.0)
    trace = world.trace()
    path = critical_path(trace)
    assert (path.stop - path.start).sum() == pytest.approx(max(world.clock))
    np.testing.assert_allclose(path.start[1:], path.stop[:-1])
