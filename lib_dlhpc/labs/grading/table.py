"""Marks as a CSV file that a spreadsheet opens without harm."""

import csv
from collections.abc import Sequence
from pathlib import Path

from lib_dlhpc.labs.grading.grade import Mark, cut
from lib_dlhpc.lifetime.files import replacing

COLUMNS = ("learner", "lab", "passed", "total", "status", "variants", "note")
FORMULA = ("=", "+", "-", "@", "\t")  # a cell that begins so is computed by a spreadsheet
LONGEST = 500  # characters of a note


def write_marks(path: Path, marks: Sequence[Mark]) -> None:
    """Write the marks, all or nothing. Raises OSError that names the file."""
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for mark in marks:
            table.writerow([cell(getattr(mark, each)) for each in COLUMNS])


def cell(value: object) -> str:
    """Return a value as the text of a cell: one line, never a formula; a long one ends behind a word."""
    text = cut(str(value), LONGEST)
    text = "".join(each if each.isprintable() else "?" for each in text)
    return f"'{text}" if text.startswith(FORMULA) else text
