"""An evaluation finds what was put into answers: gain, effect, items; and refuses what it cannot read."""

import csv

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.teaching.evaluation import (
    Answer,
    effect_size,
    evaluate,
    normalized_gain,
    read_answers,
    reliability,
    simulated,
)

KEY = list("ABCDABCDABCDABCDABCD")


def answers(right):
    """Answers of learners whose right items are given: {learner: (before, after)}, all others wrong."""
    return [
        Answer(
            learner, when, item, letter if item <= count else "ABCD"[("ABCD".index(letter) + 1) % 4]
        )
        for learner, counts in right.items()
        for when, count in zip(("before", "after"), counts, strict=True)
        for item, letter in enumerate(KEY, 1)
    ]


def test_the_gain_is_hakes_and_the_effect_is_that_of_pairs():
    found = evaluate(answers({"a": (4, 12), "b": (8, 14), "c": (6, 16)}), KEY)
    assert (found.learners, found.left_out) == (3, 0)
    assert (found.before, found.after) == pytest.approx((0.3, 0.7))
    assert found.gain.value == pytest.approx((0.7 - 0.3) / (1 - 0.3))
    more = np.array([8, 6, 10]) / 20
    assert found.effect.value == pytest.approx(more.mean() / more.std(ddof=1))


def test_a_second_form_is_marked_with_its_own_key():
    other = [*KEY[1:], KEY[0]]
    rows = answers({"a": (4, 12), "b": (8, 14), "c": (6, 16)})
    letters = dict(zip("ABCD", "BCDA", strict=True))
    moved = [
        each if each.when == "before" else each._replace(answer=letters[each.answer])
        for each in rows
    ]
    assert evaluate(moved, KEY, after=other) == evaluate(rows, KEY)._replace(
        items=evaluate(moved, KEY, after=other).items
    )
    with pytest.raises(SpecError, match="20 and 19 items"):
        evaluate(rows, KEY, after=other[1:])


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_of_simulated_answers_lies_in_the_intervals(seed):
    found = evaluate(simulated(KEY, learners=80, before=0.35, after=0.65, seed=seed), KEY)
    assert found.gain.low < (0.65 - 0.35) / (1 - 0.35) < found.gain.high
    # Each learner gains six items of twenty, give or take two and a half.
    assert found.effect.low > 1
    assert found.gain.low < found.gain.value < found.gain.high


def test_a_class_that_learned_nothing_has_an_interval_around_zero():
    found = evaluate(simulated(KEY, learners=60, before=0.5, after=0.5, seed=2), KEY)
    assert found.gain.low < 0 < found.gain.high
    assert found.effect.low < 0 < found.effect.high


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    truth = (0.6 - 0.4) / (1 - 0.4)
    classes = [evaluate(simulated(KEY, 40, 0.4, 0.6, seed), KEY) for seed in range(30)]
    covered = sum(each.gain.low < truth < each.gain.high for each in classes)
    assert 26 <= covered <= 30


def test_an_item_that_good_learners_miss_discriminates_negatively():
    planted = []
    for number in range(20):
        for item, letter in enumerate(KEY, 1):
            right = item <= number if item > 1 else number < 10  # item 1: only the weak are right
            wrong = "D" if letter != "D" else "C"
            for when in ("before", "after"):
                planted.append(Answer(str(number), when, item, letter if right else wrong))
    found = evaluate(planted, KEY)
    assert found.items[0].discrimination < -0.7
    assert found.items[9].discrimination > 0.7
    assert found.items[0].most_wrong == "D"
    assert found.items[0].after == pytest.approx(0.5)


def test_who_took_one_test_is_left_out_and_an_item_left_out_is_wrong():
    every = answers({"a": (4, 12), "b": (8, 14)})
    late = [Answer("c", "after", item, letter) for item, letter in enumerate(KEY, 1)]
    skipped = [each for each in every if (each.learner, each.when, each.item) != ("a", "after", 1)]
    found = evaluate([*skipped, *late], KEY)
    assert (found.learners, found.left_out) == (2, 1)
    assert found.items[0].after == pytest.approx(0.5)


def test_laws_at_the_ends():
    full, none = np.ones(3), np.zeros(3)
    assert np.isnan(normalized_gain(full, full))
    assert normalized_gain(none, full) == 1
    assert np.isnan(effect_size(none, full))  # all gained equally: no spread to compare with


def test_a_file_is_read_as_it_was_written(tmp_path):
    every = simulated(KEY, learners=3)
    with (tmp_path / "answers.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("learner", "when", "item", "answer"), *every])
    assert read_answers(tmp_path / "answers.csv") == every


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a,later,1,A", "line 2: when = 'later'; expected one of before, after"),
        ("a,before,0,A", "line 2: item = '0'"),
        ("a,before,1,E", "line 2: answer = 'E'; expected one of A, B, C, D"),
    ],
)
def test_a_value_that_is_none_is_refused_with_its_line(tmp_path, line, words):
    file = tmp_path / "answers.csv"
    file.write_text(f"learner,when,item,answer\n{line}\n")
    with pytest.raises(SpecError, match=words):
        read_answers(file)


def test_missing_columns_items_and_learners_are_refused(tmp_path):
    file = tmp_path / "answers.csv"
    file.write_text("learner,when,item\n")
    with pytest.raises(SpecError, match="lacks answer"):
        read_answers(file)
    with pytest.raises(SpecError, match="1 to 20"):
        evaluate([Answer("a", "before", 21, "A")], KEY)
    with pytest.raises(SpecError, match="two answers to item 1 before"):
        evaluate([Answer("a", "before", 1, "A")] * 2, KEY)
    with pytest.raises(SpecError, match="0 learners took both"):
        evaluate([Answer("a", "before", 1, "A")], KEY)


def test_the_reliability_of_items_that_agree_is_one_and_of_items_that_do_not_is_none():
    right = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    assert reliability(right) == pytest.approx(1.0)
    assert reliability(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])) == pytest.approx(
        0.0
    )
    assert np.isnan(reliability(np.eye(3)))


def test_who_missed_the_second_test_is_counted_with_the_first():
    answers = simulated(["A"] * 8, learners=6, before=0.02, after=0.98)
    answers += [Answer("gone", "before", item, "A" if item <= 2 else "B") for item in range(1, 9)]
    found = evaluate(answers, ["A"] * 8)
    assert (found.learners, found.left_out, found.dropped) == (6, 1, 0.25)
    assert found.difference.value == pytest.approx(found.after - found.before)
    assert found.difference.low <= found.difference.value <= found.difference.high
