"""What a class did on the pages: completion, gain, retention, common mistakes and time, from its exported answers.

    entries = read_entries("class.csv")  # dlhpc class export --csv class.csv
    print(table(retention(entries)))

A check may be tried until it is right, with feedback in between, so its gain says whether learners went on, not whether
they remember; that is what retention says: the same check at the opening of a later module, at the first try.
"""

import csv
import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.classroom import board
from lib_dlhpc.classroom.entry import UNANSWERED, Entry
from lib_dlhpc.classroom.grades import FORMULA, JUDGED, counts, questions_of
from lib_dlhpc.classroom.report import AGAIN
from lib_dlhpc.errors import SpecError
from lib_dlhpc.teaching.evaluation import Estimate, estimate, normalized_gain

PAUSE = 600  # s without an answer after which a learner is taken to be away
FLAGS = {"True": True, "False": False, "": None}
# (module, question) -> learner -> in order of time
Answers = dict[tuple[str, str], dict[str, list[Entry]]]


class Completion(NamedTuple):
    """A module: who opened it, who did all of its questions, the mean share done by those who opened it."""

    module: str
    opened: int
    finished: int
    done: float


class Gain(NamedTuple):
    """A question: share right at the first answer and at the last, and the normalized gain between them."""

    module: str
    question: str
    learners: int
    first: float
    last: float
    gain: Estimate


class Retention(NamedTuple):
    """A check that `again`, a later module, asks once more, of the learners who answered it in both.

    first, learned: shares right at the first and at the last answer when it was met. remembered: share right at the
    first answer when it was asked again. kept: the same of those who had learned it. days: median between the two.
    """

    module: str
    question: str
    again: str
    learners: int
    first: float
    learned: float
    remembered: float
    kept: Estimate
    days: float


class Mistake(NamedTuple):
    """A wrong answer, and how many of the learners of its question gave it."""

    module: str
    question: str
    answer: str
    gave: int
    learners: int


class Minutes(NamedTuple):
    """Time on task in a module: the quartiles over its learners."""

    module: str
    learners: int
    low: float
    median: float
    high: float


def read_entries(path: str | Path) -> list[Entry]:
    """Return the answers of `dlhpc class export --csv`, in order of time; raises SpecError, naming line and value."""
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        names = [field.name for field in dataclasses.fields(Entry)]
        columns = ["try" if name == "attempt" else name for name in names]
        if missing := [name for name in columns if name not in (rows.fieldnames or ())]:
            raise SpecError(
                f"{path} lacks {', '.join(missing)}; `dlhpc class export --csv` writes them."
            )
        found = [
            _entry(
                {name: row[column] or "" for name, column in zip(names, columns, strict=True)},
                f"{path}, line {rows.line_num}",
            )
            for row in rows
        ]
    return sorted(found, key=lambda entry: entry.time)


def _entry(row: dict[str, str], place: str) -> Entry:
    given: dict[str, Any] = {name: _unquoted(text) for name, text in row.items()}
    try:
        given["right"], given["final"] = FLAGS[row["right"]], bool(FLAGS[row["final"]])
        given["attempt"] = int(row["attempt"])
        given["value"] = float(row["value"]) if row["value"] else None
        _when(row["time"])
    except (KeyError, ValueError) as error:
        raise SpecError(
            f"{place}: {error}; expected what `dlhpc class export --csv` wrote."
        ) from None
    return Entry(**given)


def _unquoted(text: str) -> str:
    """Return a cell without the quote that keeps a spreadsheet from computing it."""
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULA) else text


def _when(time: str) -> datetime:
    return datetime.fromisoformat(time)


def completion(entries: Sequence[Entry]) -> list[Completion]:
    """Return how far learners came: a guess counts once it is given, a check once it is right, as in grades."""
    given = [entry for entry in entries if entry.kind not in UNANSWERED]
    questions = questions_of(given)
    done: dict[tuple[str, str], set[str]] = {
        (entry.module, entry.learner): set() for entry in entries
    }
    for entry in given:
        if counts(entry) and entry.question in questions[entry.module]:
            done[entry.module, entry.learner].add(entry.question)
    found = []
    for module in sorted(questions):
        shares = [
            len(own) / len(questions[module]) for (name, _), own in done.items() if name == module
        ]
        found.append(Completion(module, len(shares), shares.count(1.0), statistics.fmean(shares)))
    return found


def gains(entries: Sequence[Entry], seed: int = 0) -> list[Gain]:
    """Return the gain of each question that is right or wrong and may be answered again; a skipped one is wrong.

    Checks of earlier modules are for `retention`.
    """
    found = []
    for (module, question), by_learner in sorted(_answers(entries, JUDGED).items()):
        if question.startswith(AGAIN):
            continue
        first, last = (_right(given[place] for given in by_learner.values()) for place in (0, -1))
        found.append(
            Gain(
                module,
                question,
                len(first),
                float(first.mean()),
                float(last.mean()),
                estimate(normalized_gain, first, last, seed),
            )
        )
    return found


def retention(entries: Sequence[Entry], seed: int = 0) -> list[Retention]:
    """Return what was remembered of each check that a later module asks again."""
    answers, found = _answers(entries, JUDGED), []
    for (again, asked_again), later in sorted(answers.items()):
        if not asked_again.startswith(AGAIN):
            continue
        module, _, question = asked_again.removeprefix(AGAIN).partition(".")
        met = answers.get((module, question), {})
        both = [who for who in later if who in met and met[who][-1].time < later[who][0].time]
        if both:
            first, learned = (_right(met[who][place] for who in both) for place in (0, -1))
            remembered = _right(later[who][0] for who in both)
            found.append(
                Retention(
                    module=module,
                    question=question,
                    again=again,
                    learners=len(both),
                    first=float(first.mean()),
                    learned=float(learned.mean()),
                    remembered=float(remembered.mean()),
                    kept=estimate(_kept, learned, remembered, seed),
                    days=statistics.median(_days(met[who][-1], later[who][0]) for who in both),
                )
            )
    return found


def _days(before: Entry, after: Entry) -> float:
    return (_when(after.time) - _when(before.time)) / timedelta(days=1)


def _kept(learned: Floats, remembered: Floats) -> Any:
    """Return the share of those who had learned it that remembered; nan if nobody had."""
    had = learned.mean(axis=-1)
    both = (learned * remembered).mean(axis=-1)
    return np.divide(both, had, out=np.full_like(had, np.nan), where=had > 0)


def mistakes(entries: Sequence[Entry], most: int = 10) -> list[Mistake]:
    """Return the most common wrong answers of the class; a learner counts once for each."""
    found = []
    for (module, question), by_learner in _answers(entries, ("guess", "choice", *JUDGED)).items():
        given = sorted(
            (each for own in by_learner.values() for each in own), key=lambda each: each.time
        )
        for wrong in board.question(given)["wrong"]:
            found.append(
                Mistake(module, question, wrong["answer"], wrong["count"], len(by_learner))
            )
    return sorted(found, key=lambda each: (-each.gave, each.module, each.question, each.answer))[
        :most
    ]


def minutes(entries: Sequence[Entry], pause: float = PAUSE) -> list[Minutes]:
    """Return the time on task by module: from each entry of a learner to the next answer, pauses left out.

    What a learner reads after the last answer, or thinks about for longer than `pause` seconds, is not counted.
    """
    own = defaultdict(list)
    for entry in sorted(entries, key=lambda entry: entry.time):
        own[entry.learner].append(entry)
    spent: dict[tuple[str, str], float] = defaultdict(float)
    for learner, given in own.items():
        for before, after in pairwise(given):
            seconds = (_when(after.time) - _when(before.time)).total_seconds()
            if after.kind != "open" and seconds <= pause:
                spent[after.module, learner] += seconds / 60
    found = []
    for module in sorted({name for name, _ in spent}):
        times = [time for (name, _), time in spent.items() if name == module]
        low, median, high = (float(each) for each in np.percentile(times, [25, 50, 75]))
        found.append(Minutes(module, len(times), low, median, high))
    return found


def table(rows: Sequence[Any]) -> str:
    """Return rows of one kind as a table of text, with the names of their fields above; "none" where there is none."""
    if not rows:
        return "none"
    cells = [list(rows[0]._fields), *([_cell(value) for value in row] for row in rows)]
    wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = [isinstance(value, str) for value in rows[0]]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if is_text else cell.rjust(width)
            for cell, width, is_text in zip(line, wide, left, strict=True)
        )
        for line in cells
    )


def _cell(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _answers(entries: Iterable[Entry], kinds: Sequence[str]) -> Answers:
    found: Answers = defaultdict(lambda: defaultdict(list))
    for entry in sorted(entries, key=lambda entry: entry.time):
        if entry.kind in kinds:
            found[entry.module, entry.question][entry.learner].append(entry)
    return found


def _right(entries: Iterable[Entry]) -> Floats:
    return np.array([float(entry.right is True) for entry in entries])
