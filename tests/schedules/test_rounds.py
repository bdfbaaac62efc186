"""Laws of the data: what a round is made of, and how schedules are put together from schedules."""

import subprocess
import sys

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules import ALGORITHMS, beside, messages, prove, schedule, then, within
from lib_dlhpc.schedules.rings import cuts, ring
from lib_dlhpc.schedules.rounds import as_round


def rows(part):
    return list(zip(*(array.tolist() for array in part.arrays), strict=True))


def test_single_values_stand_for_all_messages():
    part = messages([0, 1, 2], [1, 2, 0], 5, [1, 2, 3], True)
    assert rows(part) == [(0, 1, 5, 1, True), (1, 2, 5, 2, True), (2, 0, 5, 3, True)]
    assert [array.dtype.kind for array in part.arrays] == list("iiiib")
    assert rows(messages(0, 1, 0, 4, False)) == [(0, 1, 0, 4, False)]
    assert len(messages([], [], 0, 4, False)) == 0


def test_tuples_are_a_round():
    part = as_round([(0, 1, 0, 4, "reduce"), (1, 0, 4, 2, "copy")])
    assert rows(part) == [(0, 1, 0, 4, True), (1, 0, 4, 2, False)]
    assert len(as_round([])) == 0


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([(0, 1, 0, 2.5, "copy")], "count = 2.5 .*whole number"),
        ([(0, 1, 0, 2, "add")], "'add' .*'reduce' or 'copy'"),
        ([(0, 1, 0, 2, "redcue")], "Did you mean 'reduce'"),
        ([(0, 1, 0, 2)], "is not a message"),
        ([(True, 1, 0, 2, "copy")], "source = True"),
        (None, "is not a round"),
        ([3], "3 is not a message"),
    ],
)
def test_what_is_no_round_is_refused_with_its_place(value, says):
    with pytest.raises(SpecError, match=f"mine, round 2: .*{says}"):
        as_round(value, "mine, round 2")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0, 1, 0.5, 1, True), "offset = 0.5.*//"),
        ((0, 1, 0, 1, 1), "reduce = 1: expected True"),
        (([0, 1], [1, 2, 3], 0, 1, True), "one length.*source 2, target 3"),
    ],
)
def test_messages_refuses_what_cannot_be(arguments, says):
    with pytest.raises(SpecError, match=says):
        messages(*arguments)


@pytest.mark.parametrize(("elements", "parts"), [(0, 3), (2, 5), (7, 3), (100, 7), (12, 4)])
def test_blocks_cover_the_buffer_and_differ_by_one_at_most(elements, parts):
    cut = cuts(elements, parts)
    assert cut[0] == 0 and cut[-1] == elements and len(cut) == parts + 1
    assert set(np.diff(cut)) <= {elements // parts, -(-elements // parts)}


def test_a_schedule_can_be_read_twice_and_keeps_nothing():
    ours = schedule("ring", 4, 10)
    first, second = tuple(ours), tuple(ours.rounds())
    assert [rows(a) for a in first] == [rows(b) for b in second]
    assert len(first) == 6
    huge = schedule("ring", 16384, 10**9).rounds()
    assert len(next(huge)) == 16384


def test_repr_reads_like_a_sentence():
    assert repr(messages(0, 1, 0, 3, True)) == "Round(0 -> 1: reduce elements 0 to 2)"
    assert "4 more" in repr(messages(np.arange(12), 1, 0, 1, True))


def test_then_is_one_after_the_other():
    both = list(then(ring(3, 6), ring(3, 6)))
    assert len(both) == 8
    assert [rows(part) for part in both[4:]] == [rows(part) for part in ring(3, 6)]


def test_beside_is_at_the_same_time():
    one, other = [(0, 1, 0, 1, "copy")], [(2, 3, 0, 1, "copy")]
    together = list(beside([one], [other, other]))
    assert [rows(part) for part in together] == [
        [(0, 1, 0, 1, False), (2, 3, 0, 1, False)],
        [(2, 3, 0, 1, False)],
    ]


def test_within_is_played_by_others_elsewhere():
    (part,) = within([[(0, 1, 2, 3, "copy")]], [7, 5], 10)
    assert rows(part) == [(7, 5, 12, 3, False)]
    (part,) = within([[(0, 1, 2, 3, "copy")]], [[0, 1], [2, 3]])
    assert rows(part) == [(0, 1, 2, 3, False), (2, 3, 2, 3, False)]


def test_a_students_composition_is_proved_like_any_other():
    def rows_then_columns(ranks, elements, width):
        grid = np.arange(ranks).reshape(-1, width)
        yield from within(ring(width, elements), grid)
        yield from within(ring(len(grid), elements), grid.T)

    assert prove(schedule(rows_then_columns, 12, 7, width=4)).rounds == 2 * 3 + 2 * 2


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        (("rign", 4, 4), {}, "Did you mean 'ring'"),
        (("ring", 0, 4), {}, "ranks = 0.*at least 1"),
        (("ring", 2.0, 4), {}, "ranks = 2.0"),
        (("ring", 2, -1), {}, "elements = -1.*at least 0"),
        (("ring", 4, 4), {"root": 1}, "no option 'root'; it takes no options"),
        (("hierarchical", 4, 4), {"nodesize": 2}, "Did you mean 'node_size'"),
        (("hierarchical", 4, 4), {"node_size": 0}, "node_size = 0"),
        (("rabenseifner", 6, 4), {"node_size": 4}, "divisor of the 6 ranks"),
        (("torus_2d", 6, 4), {"columns": 4}, "columns = 4.*divisor of the 6 ranks"),
        (("binomial_broadcast", 4, 4), {"root": 4}, "root = 4.*0 to 3"),
        (("halo_exchange", 4, 4), {"dimensions": 4}, "1, 2 or 3"),
        (("halo_exchange", 4, 4), {"grid": (3, 2)}, "product is 4"),
        (("ring", 4, 4), {"goal": "alreduce"}, "Did you mean 'allreduce'"),
    ],
)
def test_errors_name_the_value_and_what_is_legal(arguments, options, says):
    with pytest.raises(SpecError, match=says):
        schedule(*arguments, **options)


def test_every_allreduce_of_an_experiment_has_a_schedule():
    from lib_dlhpc.spec.strategy import ALLREDUCES

    assert set(ALLREDUCES) <= set(ALGORITHMS)


def test_the_room_needs_neither_mpi_nor_a_screen():
    code = "import sys, lib_dlhpc.schedules; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"mpi4py", "simpy", "altair", "pandas"}.isdisjoint(run.stdout.split())
