"""The published rows with their predictions, each computed once in a test process: all take many seconds.

Files that need many of them are one unit of work (lanes.py).
"""

from functools import cache

import pytest

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.prediction.validation import validate as module
from lib_dlhpc.prediction.validation.validate import Row, Validation, validate
from lib_dlhpc.spec import catalog


@cache
def scored() -> Validation:
    """Return all of them; nobody changes them."""
    return Validation(row for name in catalog.names("published") for row in scored_of(name))


@cache
def scored_of(family: str) -> tuple[Row, ...]:
    """Return those of a family."""
    return tuple(validate([family]))


def shown_in(lesson: Lesson, name: str = "published") -> dict[str, Row]:
    """Return the rows of a lesson's table of published results, by id."""
    table = lesson.tables[name].keywords
    names = [each for each, *_ in table["rows"]]
    found = {row.id: row for row in validate(table["families"], names)}
    assert set(found) == set(names)
    return found


def validate_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let validation of all families return the rows that are scored already."""
    monkeypatch.setattr(
        module, "validate", lambda *names: validate(*names) if any(names) else scored()
    )
