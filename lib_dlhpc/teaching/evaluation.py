"""What a concept test before and after says of a class: gain, effect size, and which items tell learners apart.

    found = evaluate(read_answers("answers.csv"), key_of(questions))
    print(found.gain, found.effect, found.items[0])

A file has the columns learner, when (before or after), item (1, 2, ...) and answer (A to D, empty if left out). Only
learners with both tests count. An item without an answer counts as wrong.
"""

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.errors import SpecError
from lib_dlhpc.teaching.questions import LETTERS, Question, right_letter

COLUMNS = ("learner", "when", "item", "answer")
TIMES = ("before", "after")
DRAWS, LEVEL = 4000, 95  # of the bootstrap; % of the interval


class Answer(NamedTuple):
    """One answer of one learner; "" if the item was left out."""

    learner: str
    when: str
    item: int
    answer: str


class Estimate(NamedTuple):
    """A number and its 95% interval, from a bootstrap over learners."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


class Item(NamedTuple):
    """An item: shares right before and after, item-rest correlation after, the wrong answer that most gave after."""

    number: int
    before: float
    after: float
    # -1 to 1; below 0.2 an item discriminates little, below 0 look for a mistake in it.
    discrimination: float
    most_wrong: str  # "" if all were right


class Evaluation(NamedTuple):
    """A class. gain: Hake's normalized gain of the mean. effect: mean of the differences over their deviation.

    difference: of the mean share right, after less before. reliability: KR-20 of the test after; nan if all are equal.
    """

    learners: int
    left_out: int  # with one test only
    dropped: float  # mean share right of those with the first test only; nan without any
    before: float  # mean share right
    after: float
    difference: Estimate
    reliability: float
    gain: Estimate
    effect: Estimate
    items: tuple[Item, ...]


def read_answers(path: str | Path) -> list[Answer]:
    """Return the answers of a CSV file; raises SpecError, naming line, value and the legal ones."""
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if missing := set(COLUMNS) - set(rows.fieldnames or ()):
            raise SpecError(
                f"{path} lacks {', '.join(sorted(missing))}; its columns are {', '.join(COLUMNS)}."
            )
        return [_answer(row, f"{path}, line {rows.line_num}") for row in rows]


def _answer(row: Mapping[str, str], place: str) -> Answer:
    learner, when, item, answer = ((row[name] or "").strip() for name in COLUMNS)
    when, answer = when.lower(), answer.upper()
    if when not in TIMES:
        raise SpecError(f"{place}: when = {when!r}; expected one of {', '.join(TIMES)}.")
    if not item.isdecimal() or item == "0":
        raise SpecError(f"{place}: item = {item!r}; expected 1, 2, ...")
    if answer and answer not in LETTERS:
        raise SpecError(
            f"{place}: answer = {answer!r}; expected one of {', '.join(LETTERS)}, or nothing."
        )
    return Answer(learner, when, int(item), answer)


def key_of(questions: Sequence[Question], seed: int = 0) -> list[str]:
    """Return the right letters of a version of the test, in the order of its items."""
    return [right_letter(question, seed) for question in questions]


def evaluate(
    answers: Sequence[Answer], key: Sequence[str], seed: int = 0, after: Sequence[str] | None = None
) -> Evaluation:
    """Return what a class learned. after: the key of the second test, where it is another form of as many items.

    Raises SpecError for an unknown item, forms that differ in length, or fewer than two learners with both tests.
    """
    keys = dict(zip(TIMES, (key, key if after is None else after), strict=True))
    if len(keys["after"]) != len(key):
        raise SpecError(
            f"The forms have {len(key)} and {len(keys['after'])} items; expected as many."
        )
    given = _given(answers, len(key))
    everybody = {learner for learner, _ in given}
    both = sorted(each for each in everybody if {(each, when) for when in TIMES} <= given.keys())
    if len(both) < 2:
        raise SpecError(f"{len(both)} learners took both tests; an evaluation needs two at least.")
    right = {
        when: np.array([_scored(given[each, when], keys[when]) for each in both]) for when in TIMES
    }
    first, last = (right[when].mean(axis=1) for when in TIMES)
    only = [
        _scored(own, key)
        for (who, when), own in given.items()
        if who not in both and when == "before"
    ]
    wrong = [
        [given[each, "after"].get(item, "") for each in both] for item in range(1, len(key) + 1)
    ]
    return Evaluation(
        learners=len(both),
        left_out=len(everybody) - len(both),
        dropped=float(np.mean(only)) if only else np.nan,
        before=float(first.mean()),
        after=float(last.mean()),
        difference=estimate(lambda one, other: (other - one).mean(axis=-1), first, last, seed),
        reliability=reliability(right["after"]),
        gain=estimate(normalized_gain, first, last, seed),
        effect=estimate(effect_size, first, last, seed),
        items=tuple(
            _item(place, right, keys["after"][place], wrong[place]) for place in range(len(key))
        ),
    )


def normalized_gain(before: Floats, after: Floats) -> Any:
    """Return (after - before) / (1 - before) of means over the last axis (Hake 1998); nan if all was right before."""
    first, last = before.mean(axis=-1), after.mean(axis=-1)
    return np.divide(last - first, 1 - first, out=np.full_like(first, np.nan), where=first < 1)


def effect_size(before: Floats, after: Floats) -> Any:
    """Return the mean of the paired differences over their standard deviation (Cohen's d_z); nan if that is 0."""
    more = after - before
    spread = more.std(axis=-1, ddof=1)
    return np.divide(more.mean(axis=-1), spread, out=np.full_like(spread, np.nan), where=spread > 0)


def reliability(right: Floats) -> float:
    """Return KR-20 of a test, from learners x items of 0 and 1 (Kuder and Richardson 1937); nan if all score alike."""
    items, spread = right.shape[1], right.sum(axis=1).var()
    if items < 2 or spread == 0:
        return float("nan")
    share = right.mean(axis=0)
    return float(items / (items - 1) * (1 - (share * (1 - share)).sum() / spread))


def estimate(
    law: Callable[[Floats, Floats], Any], before: Floats, after: Floats, seed: int
) -> Estimate:
    """Return what a law says of two arrays over learners, with the interval of a bootstrap over them."""
    drawn = np.random.default_rng(seed).integers(len(before), size=(DRAWS, len(before)))
    edge = (100 - LEVEL) / 2
    values = law(before[drawn], after[drawn])
    known = values[np.isfinite(values)]
    low, high = np.percentile(known, [edge, 100 - edge]) if len(known) else (np.nan, np.nan)
    return Estimate(float(law(before, after)), float(low), float(high))


def _given(answers: Sequence[Answer], items: int) -> dict[tuple[str, str], dict[int, str]]:
    given: dict[tuple[str, str], dict[int, str]] = {}
    for each in answers:
        own = given.setdefault((each.learner, each.when), {})
        if each.item > items:
            raise SpecError(f"item = {each.item}; the test has items 1 to {items}.")
        if each.item in own:
            raise SpecError(f"{each.learner} has two answers to item {each.item} {each.when}.")
        own[each.item] = each.answer
    return given


def _scored(own: Mapping[int, str], key: Sequence[str]) -> list[float]:
    return [float(own.get(item) == letter) for item, letter in enumerate(key, 1)]


def _item(place: int, right: Mapping[str, Floats], letter: str, given: Sequence[str]) -> Item:
    own = right["after"][:, place]
    rest = right["after"].sum(axis=1) - own
    differ = own.std() > 0 and rest.std() > 0
    mistakes = Counter(each for each in given if each and each != letter)
    return Item(
        place + 1,
        float(right["before"][:, place].mean()),
        float(own.mean()),
        float(np.corrcoef(own, rest)[0, 1]) if differ else 0.0,
        min(mistakes, key=lambda each: (-mistakes[each], each)) if mistakes else "",
    )


def simulated(
    key: Sequence[str], learners: int = 30, before: float = 0.35, after: float = 0.65, seed: int = 0
) -> list[Answer]:
    """Return answers of learners who do not exist. before, after: shares right on average; who is good is so twice."""
    draw = np.random.default_rng(seed)
    skill = draw.normal(0.0, 0.12, learners)
    found = []
    for when, mean in zip(TIMES, (before, after), strict=True):
        for number in range(learners):
            for item, letter in enumerate(key, 1):
                wrong = [each for each in LETTERS if each != letter]
                knows = draw.random() < np.clip(mean + skill[number], 0.02, 0.98)
                found.append(
                    Answer(
                        f"learner {number + 1}",
                        when,
                        item,
                        letter if knows else str(draw.choice(wrong)),
                    )
                )
    return found
