"""Files that gradebooks take, and all answers as one table.

A module is one column, in percent of its questions that anyone in the class has answered. A guess and a note count
because they were given, right or not; a check and a number to work out once they are right, a check of a lab once it
passes. Gradebooks know learners by their names, so those without one are left out there; two learners with one name, as
of one person with two browsers, count as one.

With first tries, a module has a second column: percent of its checks, numbers to work out and labs that the learner's
first answer was right to.

Forms, as these programs read or write them: Canvas's lib/gradebook_importer.rb (header, row of "Points Possible",
learners by SIS login or name), Moodle's grade/import/csv/classes/load_data.php (users by username, "-" is no grade, at
most 100), nbgrader's nbgrader/plugins/export.py (the columns of CsvExportPlugin).
"""

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path

from lib_dlhpc.classroom import database
from lib_dlhpc.classroom.entry import UNANSWERED, Entry
from lib_dlhpc.errors import SpecError

POINTS = 100
GIVEN = ("guess", "choice", "step")  # count because they were answered
JUDGED = ("check", "compute", "lab")  # count once they are right
FIRST = "first try"
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would compute what begins so
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
NBGRADER = (
    *("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"),
    *("raw_score", "late_submission_penalty", "score", "max_score"),
)
Rows = Iterable[Iterable[object]]
Scores = Mapping[str, Mapping[str, float]]  # name -> module -> percent


def export(
    file: Path, form: str, title: Callable[[str], str] = lambda module: module, first: bool = False
) -> tuple[str, str]:
    """Return a class's answers or grades as CSV, and a sentence about them. form: one of FORMS.

    title: from a module, or a lab, as records name it to the title of its column. first: with columns of first tries.
    Raises SpecError where there is nothing to grade.
    """
    if form == "csv":
        rows = list(_answers(file))
        return _text(rows), f"{len(rows) - 1} entries"
    found, last, unnamed = _scores(file, title, first)
    if not found:
        raise SpecError(
            "No learner in this class has both a name and an answer; --csv has all answers."
        )
    columns = sorted({column for own in found.values() for column in own})
    rows = list(WRITERS[form](found, columns, last))
    left_out = f"; {unnamed} without a name left out" if unnamed else ""
    modules = len({module for _, module in last})
    return _text(rows), f"{len(found)} learners, {modules} modules{left_out}"


def questions_of(entries: Sequence[Entry]) -> dict[str, set[str]]:
    """Return the questions of each module: not those that only a few of its learners had, as of another version."""
    had: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for entry in entries:
        had[entry.module][entry.question].add(entry.learner)
    found = {}
    for module, questions in had.items():
        everyone = set[str]().union(*questions.values())
        found[module] = {name for name, by in questions.items() if len(by) >= len(everyone) / 10}
    return found


def counts(entry: Entry) -> bool:
    """Return whether an answer counts: a guess or a note once it is given, any other once it is right."""
    return bool(entry.right) or (entry.kind in GIVEN and bool(entry.answer))


def _scores(
    file: Path, title: Callable[[str], str], first: bool
) -> tuple[Scores, dict[tuple[str, str], str], int]:
    """Return percents, the time of the last answer for each name and module, and how many learners have no name."""
    names = database.names(file)
    answers = (entry for entry in database.answers(file) if entry.kind not in UNANSWERED)
    entries = [replace(entry, module=title(entry.module)) for entry in answers]
    asked, done, last = questions_of(entries), defaultdict(set), {}
    for entry in entries:
        name = names.get(entry.learner, "")
        if name:
            last[name, entry.module] = entry.time
            if counts(entry) and entry.question in asked[entry.module]:
                done[name, entry.module].add(entry.question)
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    for name, module in last:
        share = len(done[name, module]) / len(asked[module])
        scores[name][module] = round(POINTS * share, 2)
    for name, own in _first_tries(entries, names, asked).items() if first else ():
        for module, percent in own.items():
            scores[name][f"{module} {FIRST}"] = percent
    present = {entry.learner for entry in entries}
    return scores, last, sum(not names.get(learner, "") for learner in present)


def _first_tries(
    entries: Sequence[Entry], names: Mapping[str, str], asked: Mapping[str, set[str]]
) -> Scores:
    """Return for each name and module how many of its judged questions were right at once, in percent."""
    judged: dict[str, set[str]] = defaultdict(set)
    firsts: dict[tuple[str, str], dict[str, bool]] = defaultdict(dict)
    for entry in entries:  # in order of time
        name = names.get(entry.learner, "")
        if entry.kind in JUDGED and entry.question in asked[entry.module]:
            judged[entry.module].add(entry.question)
            if name:
                firsts[name, entry.module].setdefault(entry.question, bool(entry.right))
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    for (name, module), own in firsts.items():
        scores[name][module] = round(POINTS * sum(own.values()) / len(judged[module]), 2)
    return scores


def _answers(file: Path) -> Rows:
    names = database.names(file)
    columns = ("try" if column == "attempt" else column for column in database.COLUMNS)
    yield ("name", *columns, "right_at_first_try")
    for entry in database.answers(file):
        first = entry.right if entry.attempt == 1 else None
        yield (names.get(entry.learner, ""), *astuple(entry), first)


def _canvas(scores: Scores, modules: list[str], last: Mapping[tuple[str, str], str]) -> Rows:
    yield (*CANVAS, *modules)
    yield ("Points Possible", "", "", "", "", *[POINTS] * len(modules))
    for name, own in sorted(scores.items()):
        yield (name, "", "", name, "", *(own.get(module, "") for module in modules))


def _moodle(scores: Scores, modules: list[str], last: Mapping[tuple[str, str], str]) -> Rows:
    yield ("username", *modules)
    for name, own in sorted(scores.items()):
        yield (name, *(own.get(module, "-") for module in modules))


def _nbgrader(scores: Scores, modules: list[str], last: Mapping[tuple[str, str], str]) -> Rows:
    yield NBGRADER
    for module in modules:
        for name, own in sorted(scores.items()):
            score = own.get(module, 0.0)
            time = last.get((name, module.removesuffix(f" {FIRST}")), "")
            yield (
                module.replace(" ", "_"),
                "",
                time,
                name,
                "",
                "",
                "",
                score,
                0.0,
                score,
                float(POINTS),
            )


def _text(rows: Rows) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([*map(_cell, row)] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value.startswith(FORMULA) and len(value) > 1:
        return f"'{value}"
    return value


WRITERS: Mapping[str, Callable[[Scores, list[str], Mapping[tuple[str, str], str]], Rows]] = {
    "canvas": _canvas,
    "moodle": _moodle,
    "nbgrader": _nbgrader,
}
FORMS = {
    "csv": "every entry, one per row",
    "canvas": "grades for the gradebook of Canvas",
    "moodle": "grades for Moodle: map username, a new grade item for each column",
    "nbgrader": "grades in the columns of nbgrader export",
}
