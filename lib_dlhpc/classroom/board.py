"""What a teacher sees of a class: who is where, how each question was guessed, which mistakes are common.

A histogram counts learners, each by their first answer. Nothing here names a learner unless it is asked to.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lib_dlhpc.classroom import database
from lib_dlhpc.classroom.entry import UNANSWERED, Entry

BINS = 8
TINY = 1e-300  # width of a bin
WIDE = 20  # guesses that span more than this factor are counted in bins of equal factors
COMMON = 5  # wrong answers of a question that are listed
STATES = ("right at once", "right later", "not yet right", "skipped")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
Bin = dict[str, Any]  # label, count, right: None if neither


def board(file: Path, named: bool = False) -> dict[str, Any]:
    """Return what a class's board shows. named: with the learners' names."""
    version, entries = database.version(file), database.answers(file)
    names = database.names(file)
    labels = {
        learner: (name if named and name else f"Learner {number}")
        for number, (learner, name) in enumerate(names.items(), 1)
    }
    by_question = defaultdict(list)
    for entry in entries:
        if entry.kind != "open":
            by_question[entry.module, entry.question].append(entry)
    questions = [question(given) for given in by_question.values()]
    questions.sort(key=lambda each: each["module"])  # within one, as they were first answered
    return {
        "version": version,
        "answers": sum(entry.kind not in UNANSWERED for entry in entries),
        "learners": [where(labels[who], own) for who, own in _by_learner(entries, labels)],
        "questions": questions,
    }


def where(label: str, entries: Sequence[Entry]) -> dict[str, Any]:
    """Return where a learner is: module and question of the last entry, its time, and how much they have done."""
    last = entries[-1]
    given = [entry for entry in entries if entry.kind not in UNANSWERED]
    done = {(entry.module, entry.question) for entry in given if entry.final}
    at = {"module": last.module, "question": last.question, "time": last.time}
    return {"label": label, **at, "answers": len(given), "done": len(done)}


def question(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what a class answered to one question. entries: all of it, in order of time."""
    of_learner = defaultdict(list)
    for entry in entries:
        of_learner[entry.learner].append(entry)
    first = [given[0] for given in of_learner.values()]
    kind = Counter(given.kind for given in first).most_common(1)[0][0]
    known = next((entry.result for entry in reversed(entries) if entry.result), "")
    learners = list(of_learner.values())
    return {
        "module": entries[0].module,
        "question": entries[0].question,
        "kind": kind,
        "time": entries[-1].time,
        "asked": _asked([entry.asked for entry in entries if entry.asked]),
        "learners": len(first),
        "right": sum(any(entry.right for entry in given) for given in of_learner.values()),
        "result": known,
        "bins": _covered(kind, first, learners, known.partition(" ")[2]),
        "revealed": _bins(kind, first, learners, known),
        "wrong": _wrong(kind, entries, learners),
        "words": [e.answer for e in entries if kind == "step" and e.answer.strip("-")],
    }


def _asked(texts: Sequence[str]) -> str:
    """Return what was asked last, with "…" for the numbers of which each learner had others."""
    if not texts:
        return ""
    numbers = [
        NUMBER.findall(text) for text in texts if NUMBER.split(text) == NUMBER.split(texts[-1])
    ]
    common = iter(
        [given[0] if len(set(given)) == 1 else "…" for given in zip(*numbers, strict=True)]
    )
    return NUMBER.sub(lambda _: next(common), texts[-1])


def _covered(
    kind: str, first: Sequence[Entry], learners: Sequence[Sequence[Entry]], unit: str
) -> list[Bin]:
    """Return the bins before what is right may be seen: they follow from the first answers alone."""
    if kind == "guess":
        return [*histogram(_values(first), unit=unit), *_skips(first)]
    if kind in ("choice", "check"):
        counts = Counter(entry.answer for entry in first if entry.answer)
        return [_bin(answer, count, None) for answer, count in counts.items()] + _skips(first)
    return _bins(kind, first, learners, "")


def _bins(
    kind: str, first: Sequence[Entry], learners: Sequence[Sequence[Entry]], result: str
) -> list[Bin]:
    if kind == "guess":
        unit = result.partition(" ")[2]
        return [*histogram(_values(first), result, unit), *_skips(first)]
    if kind in ("choice", "check"):
        counts = Counter(entry.answer for entry in first if entry.answer)
        rights = {entry.answer: entry.right for given in learners for entry in given}
        rights.update({result: True} if result else {})
        listed = [*counts, *(answer for answer in rights if answer and answer not in counts)]
        return [_bin(answer, counts[answer], rights[answer]) for answer in listed] + _skips(first)
    if kind == "step":
        return [_bin("answer opened", len(learners), None)]
    if kind == "hint":
        stages = Counter(map(len, learners))
        return [_bin(f"{stage} opened", stages[stage], None) for stage in sorted(stages)]
    states = Counter(map(_state, learners))
    return [
        _bin(state, states[state], state.startswith("right")) for state in STATES if states[state]
    ]


def _bin(label: str, count: int, right: bool | None) -> Bin:
    return {"label": label, "count": count, "right": right}


def _values(entries: Iterable[Entry]) -> list[float]:
    return [entry.value for entry in entries if entry.value is not None]


def _skips(first: Iterable[Entry]) -> list[Bin]:
    count = sum(not entry.answer for entry in first)
    return [_bin("skipped", count, None)] if count else []


def _state(given: Sequence[Entry]) -> str:
    if given[0].right:
        return STATES[0]
    if any(entry.right for entry in given):
        return STATES[1]
    return STATES[3] if any(entry.final for entry in given) else STATES[2]


def histogram(values: Sequence[float], result: str = "", unit: str = "") -> list[Bin]:
    """Return guesses in bins from the smallest to the largest; the bin with the result is right.

    result: as text, empty while it is not to be seen. unit: of the labels.

    Bins are equally wide, with round edges, or by equal factors where positive guesses span more than WIDE.
    """
    right = _number(result)
    every = [
        value for value in [*values, *([] if right is None else [right])] if math.isfinite(value)
    ]
    if not every:
        return []
    low, high = min(every), max(every)
    if low == high:
        return [_bin(f"{low:,.3g} {unit}".strip(), len(values), None if right is None else True)]
    edges = _by_factor(low, high) if low > 0 and high / low > WIDE else _even(low, high)

    def place(value: float) -> int:
        return min(sum(value >= edge for edge in edges[1:]), len(edges) - 2)

    counts = Counter(place(value) for value in values if math.isfinite(value))
    correct = None if right is None else place(right)
    return [
        _bin(
            f"{a:,.3g} to {b:,.3g} {unit}".strip(),
            counts[number],
            None if correct is None else number == correct,
        )
        for number, (a, b) in enumerate(pairwise(edges))
    ]


def _even(low: float, high: float) -> list[float]:
    """Return edges at multiples of 1, 2 or 5 times a power of ten, of at most BINS + 1 bins."""
    least = (high - low) / BINS
    if least < TINY:
        return [low, high]
    power = 10.0 ** math.floor(math.log10(least))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= least)
    start = math.floor(low / step)
    return [number * step for number in range(start, math.floor(high / step) + 2)]


def _by_factor(low: float, high: float) -> list[float]:
    return [low * (high / low) ** (number / BINS) for number in range(BINS + 1)]


def _wrong(
    kind: str, entries: Sequence[Entry], learners: Sequence[Sequence[Entry]]
) -> list[dict[str, Any]]:
    """Return the most common wrong answers, each learner counted once for each; of a lab what does not hold yet."""
    found: Counter[str] = Counter()
    if kind == "lab":
        for given in learners:
            found.update(set(filter(None, given[-1].answer.split("; "))))
    elif kind != "compute":
        wrong = {(e.learner, _rounded(e)) for e in entries if e.right is False and e.answer}
        found.update(answer for _, answer in wrong)
    return [{"answer": answer, "count": count} for answer, count in found.most_common(COMMON)]


def _rounded(entry: Entry) -> str:
    return entry.answer if entry.value is None else f"{entry.value:,.2g}"


def _number(result: str) -> float | None:
    try:
        return float(result.split()[0].replace(",", ""))
    except (IndexError, ValueError):
        return None


def _by_learner(entries: Iterable[Entry], labels: dict[str, str]) -> list[tuple[str, list[Entry]]]:
    own = defaultdict(list)
    for entry in entries:
        own[entry.learner].append(entry)
    return [(learner, own[learner]) for learner in labels if own[learner]]
