"""Cases: a published table to read, a plan with two mistakes, and a choice with several defensible answers.

    Case(title, Table(source, head, rows), [Reading(ask, [Step("Bytes", n, "B")], said)],
         Plan(setting, [Line(text), Line(text, wrong, steps), ...]), Choice(ask, [Option(...)], rubric))

A file of `instructor_notes/case` defines `case(draw)`; its numbers are those of the catalog and of the library. The
answers are a page of their own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, read

__all__ = ["Case", "Choice", "Draw", "Line", "Option", "Plan", "Reading", "Step", "Table", "case"]

READING, MISTAKES, WRONG = 3, 3, 2  # points of the readings and of the mistakes; mistakes in a plan
HAND_IN = (
    "**Hand in** one page: each number with its formula, the two wrong lines of the plan with their corrections, and"
    " your choice. Allow 45 to 60 minutes. Several choices can earn all points; a choice without a number earns none."
)


class Table(NamedTuple):
    """Published rows, and where they are from."""

    source: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Reading(NamedTuple):
    """A question about the table, the numbers of its answer, and what they say."""

    ask: str
    steps: Sequence[Step]
    said: str


class Line(NamedTuple):
    """A line of a plan; wrong: what is wrong with it, and steps: the right number. Both are empty where it is right."""

    text: str
    wrong: str = ""
    steps: Sequence[Step] = ()


class Plan(NamedTuple):
    """What somebody plans to do, and the lines by which it is justified."""

    setting: str
    lines: Sequence[Line]


class Option(NamedTuple):
    """A choice, its numbers, and the condition under which it is the one to defend; empty: it cannot be defended."""

    name: str
    steps: Sequence[Step]
    defended: str


class Choice(NamedTuple):
    """A decision. rubric: what earns points, and how many. toml: the file to start from, if any."""

    ask: str
    options: Sequence[Option]
    rubric: Mapping[str, int]
    toml: str = ""


class Case(NamedTuple):
    """A case of ten points."""

    title: str
    table: Table
    readings: Sequence[Reading]
    plan: Plan
    choice: Choice

    @property
    def points(self) -> int:
        """All points."""
        return READING + MISTAKES + sum(self.choice.rubric.values())


def case(path: Path, seed: int = 0) -> Case:
    """Return the case of a file, in one version."""
    found: Case = read(path, "case")(Draw(seed, path.stem))
    return found


def asked(title: str, found: Case) -> str:
    """Return the case as Markdown, without a number of its answers."""
    head, rows = found.table.head, found.table.rows
    lines = [f"# {title}: {found.title}", "", HAND_IN, ""]
    lines += [f"## 1. Read a published table ({READING} points)", "", found.table.source, ""]
    lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(row)} |" for row in rows] + [""]
    lines += [f"{place}. {each.ask}" for place, each in enumerate(found.readings, 1)] + [""]
    lines += [f"## 2. Find the two mistakes ({MISTAKES} points)", "", found.plan.setting, ""]
    lines += [f"{place}. {each.text}" for place, each in enumerate(found.plan.lines, 1)]
    lines += ["", "Two lines are wrong. Correct each by a number or a reason.", ""]
    lines += [f"## 3. Choose, and defend it ({_points(found)} points)", "", found.choice.ask, ""]
    if found.choice.toml:
        lines += ["```toml", found.choice.toml.strip(), "```", ""]
    lines += [f"- {option.name}" for option in found.choice.options] + [""]
    lines += ["What earns points:", ""]
    lines += [f"- {points}: {what}" for what, points in found.choice.rubric.items()] + [""]
    return "\n".join(lines)


def answered(title: str, found: Case) -> str:
    """Return the answers as Markdown: numbers by hand, both mistakes, and when each choice can be defended."""
    lines = [
        f"# {title}: {found.title}, answers",
        "",
        f"## 1. Read a published table ({READING} points)",
    ]
    for place, each in enumerate(found.readings, 1):
        lines += ["", f"**{place}.** {each.said}", "", *_listed(each.steps)]
    lines += ["", f"## 2. Find the two mistakes ({MISTAKES} points)"]
    for place, line in enumerate(found.plan.lines, 1):
        if line.wrong:
            lines += ["", f"**Line {place}.** {line.wrong}", "", *_listed(line.steps)]
    lines += [
        "",
        "All points for both with their corrections. A right line that is called wrong costs one.",
    ]
    lines += ["", f"## 3. Choose, and defend it ({_points(found)} points)"]
    for option in found.choice.options:
        when = option.defended or "It cannot be defended."
        lines += ["", f"**{option.name}.** {when}", "", *_listed(option.steps)]
    lines += ["", *(f"- {points}: {what}" for what, points in found.choice.rubric.items()), ""]
    return "\n".join(lines)


def _points(found: Case) -> int:
    return sum(found.choice.rubric.values())


def _listed(steps: Sequence[Step]) -> list[str]:
    return [f"- {step.do}: {step.result}" for step in steps]
