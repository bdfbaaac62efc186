"""A page for the human part of a mark: what the checks found, the rubric of the lab, the learner's reflection."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lib_dlhpc.labs.findings import Finding
from lib_dlhpc.labs.findings import mark as sign
from lib_dlhpc.labs.grading.grade import IN_TORCH, Mark
from lib_dlhpc.labs.grading.hand_in import NotAllowed, Unreadable, text_of

EMPTY = ("*Your reflection.*", "")


class Row(NamedTuple):
    """A row of a rubric. items: what checks decide of it, each by the beginnings of its laws; empty: a human does."""

    points: int
    what: str
    items: tuple[tuple[str, ...], ...]


def rubric_of(notes: Path, lab: str) -> list[Row]:
    """Return the rubric in the lab's notes for instructors; none where there are no notes.

    The third column of its table has the items of a row, `;` between them, with `+` between the laws of one.
    """
    file = notes / f"lab_{lab}.md"
    if not file.is_file():
        return []
    _, _, part = file.read_text("utf-8").partition("## Rubric")
    part, _, _ = part.partition("\n## ")
    cells = [line.split("|")[1:4] for line in part.splitlines() if line.count("|") == 4]
    return [
        Row(
            int(points),
            what.strip(),
            tuple(_laws(item) for item in items.split(";") if item.strip()),
        )
        for points, what, items in cells
        if points.strip().isdigit()
    ]


def _laws(item: str) -> tuple[str, ...]:
    return tuple(law.strip() for law in item.split("+"))


def points_of(row: Row, findings: Sequence[Finding]) -> int | None:
    """Return the points of a row: one less for each item that does not hold; None where a human decides.

    A human decides where a row has no laws, where one of them was not checked, and where one item has several points
    and does not hold, such as a target that was nearly reached.
    """
    held = [_holds(item, findings) for item in row.items]
    if not held or None in held:
        return None
    wrong = held.count(False)
    if wrong and len(held) == 1 < row.points:
        return None
    return max(0, row.points - wrong)


def _holds(item: Sequence[str], findings: Sequence[Finding]) -> bool | None:
    """Return whether all laws of an item hold; None where none is known not to, and one was not checked."""
    right = [
        next((each.right for each in findings if each.law.startswith(law)), None) for law in item
    ]
    return False if False in right else None if None in right else True


def page(mark: Mark, rubric: list[Row]) -> str:
    """Return the page of a learner in Markdown. Rows that the checks decide have their points, but not in PyTorch.

    The laws in PyTorch are others, and a beginning such as "Even" may be that of one by accident.
    """
    lines = [f"# {_safe(mark.learner)}, {mark.lab}", ""]
    lines += [
        f"{mark.passed} of {mark.total} checks, {mark.status}; variants: {mark.variants}. {_safe(mark.note)}",
        "",
    ]
    lines += [f"- {sign(each)} {_safe(each.law)}. {_safe(each.words)}" for each in mark.findings]
    lines += ["", "## Rubric", "", "| points | of | |", "|---|---|---|"]
    ended = mark.status in ("passed", "failed")
    judged = mark.findings if ended and not mark.lab.endswith(IN_TORCH) else ()
    for row in rubric:
        points = points_of(row, judged)
        given = "" if points is None else points
        lines.append(f"| {given} | {row.points} | {row.what} |")
    lines += ["", "## Reflection", ""]
    return "\n".join([*lines, *_quoted(reflection(mark.folder)), ""])


def reflection(folder: Path) -> str:
    """Return what follows "Reflect" in the learner's notebook, or why there is nothing."""
    files = sorted(folder.glob("*.ipynb"))
    if not files:
        return "No notebook was handed in."
    try:
        cells = json.loads(text_of(files[0], most=20_000_000))["cells"]
        texts = ["".join(each["source"]) for each in cells if each["cell_type"] == "markdown"]
    except (Unreadable, NotAllowed) as error:
        return str(error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{files[0].name} is not a notebook."
    after = [number for number, text in enumerate(texts) if text.startswith("## Reflect")]
    written = [text for text in texts[after[-1] + 1 :] if text not in EMPTY] if after else []
    return "\n\n".join(written) or "Nothing was written."


def _quoted(text: str) -> list[str]:
    return [f"> {_safe(line)}".rstrip() for line in text.splitlines()]


def _safe(text: str) -> str:
    """Return a line that no viewer of Markdown takes for HTML."""
    text = text.encode("utf-8", "replace").decode()  # no half of a surrogate pair
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
