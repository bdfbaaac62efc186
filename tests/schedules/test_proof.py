"""Every algorithm is proved for any ranks and elements; every mistake is refused, and the message is right."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules import (
    ALGORITHMS,
    COLLECTIVES,
    ProofError,
    Round,
    Schedule,
    messages,
    prove,
    schedule,
)

ROOTED = ["binomial", *COLLECTIVES["broadcast"], *COLLECTIVES["reduce"]]
IN_NODES = ["recursive_doubling", "rabenseifner", "binomial", "hierarchical", "torus_2d"]
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
ranks = st.integers(1, 33)
elements = st.integers(0, 100)


@every_algorithm
@given(p=ranks, n=elements)
def test_every_algorithm_does_what_it_is_for(name, p, n):
    prove(schedule(name, p, n))


@pytest.mark.parametrize("name", ROOTED)
@given(p=ranks, n=elements, data=st.data())
def test_any_rank_can_be_the_root(name, p, n, data):
    prove(schedule(name, p, n, root=data.draw(st.integers(0, p - 1))))


@pytest.mark.parametrize("name", IN_NODES)
@given(g=st.integers(1, 9), nodes=st.integers(1, 6), n=elements)
def test_nodes_of_any_size(name, g, nodes, n):
    prove(schedule(name, g * nodes, n, node_size=g))


@given(p=ranks, g=st.integers(1, 9), n=elements)
def test_the_last_node_of_a_hierarchy_may_be_smaller(p, g, n):
    prove(schedule("hierarchical", p, n, node_size=g))


@pytest.mark.parametrize("name", ["double_binary_tree", "chain_broadcast"])
@given(p=ranks, n=elements, segments=st.integers(1, 20))
def test_any_number_of_segments(name, p, n, segments):
    prove(schedule(name, p, n, segments=segments))


@given(p=ranks, n=elements, d=st.integers(1, 3), periodic=st.booleans())
def test_halos_on_any_grid(p, n, d, periodic):
    proof = prove(schedule("halo_exchange", p, n, dimensions=d, periodic=periodic))
    assert proof.rounds == 1


def test_halos_reach_the_neighbors():
    """On a row of three, face 1 moves right and face 0 moves left; the rims keep theirs."""
    (part,) = schedule("halo_exchange", 3, 10, dimensions=1)
    pairs = set(zip(part.source.tolist(), part.target.tolist(), part.offset.tolist(), strict=True))
    assert pairs == {(0, 1, 5), (1, 2, 5), (1, 0, 0), (2, 1, 0)}


def test_a_large_one_is_counted():
    proof = prove(schedule("ring", 256, 100_000))
    assert (proof.rounds, proof.messages) == (510, 510 * 256)
    assert proof.elements_moved == 510 * 100_000
    assert str(proof).startswith("Proved: allreduce in 510 rounds")


@pytest.mark.parametrize("name", COLLECTIVES["allreduce"])
def test_one_rank_sends_nothing(name):
    assert prove(schedule(name, 1, 10)).messages == 0


@given(p=st.integers(2, 12), n=st.integers(1, 20))
def test_a_double_tree_gives_each_rank_one_send_and_one_receive_a_round(p, n):
    for part in schedule("double_binary_tree", p, n):
        assert len(set(part.source)) == len(set(part.target)) == len(part)


# --- mistakes ---


class Impossible(Exception):
    """What the slow check found before the end: (target or source rank, element)."""


def followed(ours):
    """Follow an allreduce element by element, with nothing but counters."""
    held = [[Counter([r]) for _ in range(ours.elements)] for r in range(ours.ranks)]
    for part in ours:
        before = [list(buffer) for buffer in held]
        written = set()
        for s, t, o, c, reduce in zip(*(a.tolist() for a in part.arrays), strict=True):
            for e in range(o, o + c):
                if (t, e) in written and not part.switch:
                    raise Impossible(t, e)
                written.add((t, e))
                there = held if part.switch else before  # a switch adds all that meet there
                held[t][e] = there[t][e] + before[s][e] if reduce else before[s][e]
    return held


def mutated(rounds, at, how, by):
    """The rounds with message number `at` dropped, its kind swapped or its offset moved."""
    result, seen = [], 0
    for part in rounds:
        arrays = [np.array(a) for a in part.arrays]
        if seen <= at < seen + len(part):
            i = at - seen
            if how == "drop":
                arrays = [np.delete(a, i) for a in arrays]
            elif how == "swap":
                arrays[4][i] ^= True
            else:
                arrays[2][i] += by
        result.append(Round(*arrays, part.switch))
        seen += len(part)
    return result


@pytest.mark.parametrize("how", ["drop", "swap", "shift"])
@pytest.mark.parametrize("name", COLLECTIVES["allreduce"])
@given(p=st.integers(2, 9), n=st.integers(1, 12), data=st.data())
def test_a_changed_message_is_refused_exactly_when_it_matters(name, how, p, n, data):
    rounds = tuple(schedule(name, p, n))
    total = sum(len(part) for part in rounds)
    at, by = data.draw(st.integers(0, total - 1)), data.draw(st.sampled_from([-1, 1]))
    broken = mutated(rounds, at, how, by)
    inside = [(part.offset >= 0) & (part.offset + part.count <= n) for part in broken]
    ours = Schedule("mutated", p, n, lambda: broken)
    if not all(ok.all() for ok in inside):
        with pytest.raises(ProofError, match="the buffer has elements 0 to"):
            prove(ours)
        return
    try:
        held = followed(ours)
    except Impossible as error:
        with pytest.raises(ProofError, match="both write") as caught:
            prove(ours)
        rank, element = error.args
        assert f"rank {rank};" in str(caught.value)
        assert caught.value.rank == rank
        assert caught.value.elements[0] <= element
        return
    full = Counter(range(p))
    wrong = {(r, e) for r in range(p) for e in range(n) if held[r][e] != full}
    if not wrong:
        prove(ours)
        return
    with pytest.raises(ProofError) as caught:
        prove(ours)
    check_text(caught.value, held, wrong, p)


def check_text(error, held, wrong, p):
    """The rank, the elements, what it lacks and what it repeats are those that the slow check found."""
    text, first = str(error), min(wrong)
    start, stop = error.elements
    assert (error.rank, start) == first
    assert all((error.rank, e) in wrong for e in range(start, stop))
    assert text.startswith(f"Rank {error.rank}, element")
    counts = held[error.rank][start]
    lacks = [r for r in range(p) if counts[r] == 0]
    repeats = [r for r in range(p) if counts[r] > 1]
    for word, ranks_ in (("lacks", lacks), ("has", repeats)):
        named = re.search(rf"{word} the contribution of ranks? ([\d, ]*\d)", text)
        assert (named is not None) == bool(ranks_)
        if named:
            assert named[1].split(", ") == [str(r) for r in ranks_[:4]]
    if error.round is not None:
        assert f"ound {error.round}" in text


def mine(*rounds, p=2, n=4, goal="allreduce"):
    """A schedule of lists of tuples."""
    return schedule(lambda ranks, elements: iter(rounds), p, n, goal=goal)


@pytest.mark.parametrize(
    ("ours", "says", "rank", "round_"),
    [
        (mine([(0, 2, 0, 4, "copy")]), "target 2 .*ranks 0 to 1", 2, 0),
        (mine([(-1, 1, 0, 4, "copy")]), "source -1", -1, 0),
        (mine([(0, 0, 0, 4, "copy")]), "rank 0 sends a message to itself", 0, 0),
        (mine([], [(0, 1, 3, 2, "copy")]), "Round 1: .*offset 3 and count 2.*0 to 3", 0, 1),
        (mine([(0, 1, 0, -1, "copy")]), "count -1", 0, 0),
        (mine([(0, 1, 0, 1, "copy")], n=0), "the buffer is empty", 0, 0),
        (mine([(0, 1, 0, 4 / 2, "copy")]), "count = 2.0 .*//", None, 0),
        (
            mine([(0, 2, 0, 4, "reduce"), (1, 2, 2, 2, "reduce")], p=3),
            "ranks 0 and 1 both write elements 2 to 3 of rank 2; .*Use two rounds",
            2,
            0,
        ),
        (
            mine([(1, 2, 0, 4, "copy")], p=3, goal="broadcast"),
            "rank 1 sends elements 0 to 3 to rank 2, but has received nothing there yet",
            1,
            0,
        ),
        (
            mine([(0, 1, 0, 4, "reduce")], goal="broadcast"),
            "rank 1 has to combine .* 'reduce' instead of 'copy'",
            1,
            0,
        ),
        (mine([(0, 1, 0, 4, "copy")]), "Rank 0, .*lacks .*rank 1. No message ever", 0, None),
        (
            mine([(0, 1, 0, 4, "copy")], [(1, 0, 0, 4, "copy")]),
            "Rank 0, .*lacks the contribution of rank 1. It was lost in round 0: rank 0's copy",
            0,
            0,
        ),
        (
            mine([(0, 1, 0, 4, "reduce")], [(1, 0, 0, 4, "reduce")]),
            "Rank 0, elements 0 to 3: .*rank 0 twice. Round 1 first did so: rank 0 combined what rank 1 sent",
            0,
            1,
        ),
        (
            mine([(0, 1, 0, 3, "copy")], goal="broadcast"),
            "Rank 1, element 3: .*lacks the contribution of rank 0",
            1,
            None,
        ),
        (
            mine([(1, 0, 2, 1, "copy")], goal="all_to_all"),
            "Rank 1, element 1: .*lacks the contribution of rank 0",
            1,
            None,
        ),
    ],
)
def test_a_beginner_is_reported_what_is_wrong(ours, says, rank, round_):
    with pytest.raises(ProofError, match=says) as caught:
        prove(ours)
    assert (caught.value.rank, caught.value.round) == (rank, round_)


def test_overwriting_what_is_sent_is_fine():
    """Data sent is that of the beginning of the round, so two ranks may swap in place."""
    prove(mine([(0, 1, 0, 4, "reduce"), (1, 0, 0, 4, "reduce")]))


def test_a_function_that_yields_nothing_useful_is_refused():
    with pytest.raises(ProofError, match="must yield rounds"):
        prove(schedule(lambda ranks, elements: None, 2, 4))

    def endless(ranks, elements):
        while True:
            yield []

    with pytest.raises(ProofError, match="does the loop that yields them end"):
        prove(schedule(endless, 2, 4))


def test_rounds_made_by_hand_of_the_wrong_type_are_refused():
    part = messages(0, 1, 0, 4, True)
    floats = Round(part.source, part.target, part.offset * 1.0, part.count, part.reduce)
    with pytest.raises(ProofError, match="whole numbers"):
        prove(Schedule("floats", 2, 4, lambda: [floats]))
    short = Round(part.source, part.target, np.zeros(2, np.int64), part.count, part.reduce)
    with pytest.raises(ProofError, match="lengths"):
        prove(Schedule("short", 2, 4, lambda: [short]))


def test_goals_have_names():
    with pytest.raises(SpecError, match="Did you mean 'broadcast'"):
        prove(schedule("ring", 2, 4), goal="brodcast")
    with pytest.raises(SpecError, match="root = 2"):
        prove(schedule("binomial_broadcast", 2, 4), root=2)


def test_a_ring_is_no_broadcast_and_a_broadcast_no_allreduce():
    with pytest.raises(ProofError):
        prove(schedule("binomial_broadcast", 4, 4), goal="allreduce")
    assert prove(schedule("ring", 4, 4), goal="reduce", root=3).goal == "reduce"
