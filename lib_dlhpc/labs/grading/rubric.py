"""A page for the human part of a mark: what the checks found, the rubric of the lab, the learner's reflection."""

import json
from pathlib import Path

from lib_dlhpc.labs.findings import mark as sign
from lib_dlhpc.labs.grading.grade import Mark
from lib_dlhpc.labs.grading.hand_in import NotAllowed, Unreadable, text_of

HUMAN = ("reflection", "notebook", "reason", "ten attempts")  # words of a row that no check decides
EMPTY = ("*Your reflection.*", "")


def rubric_of(notes: Path, lab: str) -> list[tuple[str, str]]:
    """Return (points, what for) of the lab's notes for instructors; none where there are no notes."""
    file = notes / f"lab_{lab}.md"
    if not file.is_file():
        return []
    _, _, part = file.read_text("utf-8").partition("## Rubric")
    part, _, _ = part.partition("\n## ")
    rows = [line.strip("| ").split("|", 1) for line in part.splitlines() if line.startswith("|")]
    return [(row[0].strip(), row[1].strip()) for row in rows if row[0].strip().isdigit()]


def page(mark: Mark, rubric: list[tuple[str, str]]) -> str:
    """Return the page of a learner in Markdown. Where all checks hold, their rows have full points."""
    lines = [f"# {_safe(mark.learner)}, {mark.lab}", ""]
    lines += [
        f"{mark.passed} of {mark.total} checks, {mark.status}; variants: {mark.variants}. {_safe(mark.note)}",
        "",
    ]
    lines += [f"- {sign(each)} {_safe(each.law)}. {_safe(each.words)}" for each in mark.findings]
    lines += ["", "## Rubric", "", "| points | of | |", "|---|---|---|"]
    for points, what in rubric:
        human = any(word in what for word in HUMAN)
        given = points if mark.status == "passed" and not human else ""
        lines.append(f"| {given} | {points} | {what} |")
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
        return f"{files[0].name} is no notebook."
    after = [number for number, text in enumerate(texts) if text.startswith("## Reflect")]
    written = [text for text in texts[after[-1] + 1 :] if text not in EMPTY] if after else []
    return "\n\n".join(written) or "Nothing was written."


def _quoted(text: str) -> list[str]:
    return [f"> {_safe(line)}".rstrip() for line in text.splitlines()]


def _safe(text: str) -> str:
    """Return a line that no viewer of Markdown takes for HTML."""
    text = text.encode("utf-8", "replace").decode()  # no half of a surrogate pair
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
