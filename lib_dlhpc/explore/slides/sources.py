"""What a module has for its slides: its lesson, the titles in slides.toml, its derivations and its diagrams."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.slides.derivation import Derivation
from lib_dlhpc.explore.slides.diagram import Diagram

QUESTIONS = re.compile(r"from (lib_dlhpc\.explore\.\w+)\.questions import ask")


class Titles(NamedTuple):
    """What slides.toml says. ideas: the title of a section's idea; shown: what the figure of a guess shows.

    tables: the title of a section's table, if that has a slide of its own; figures: which of a guess's figures, if not
    the first; settings: of its controls, if not those of the page; formulas: of a section's idea, as TeX. The
    figure of a guess that is not among `shown` is what is known beforehand: it stands uncovered beside the question.
    answered: the title of its answer then, which may have a diagram. asked: the topic of each guess, and of a check
    whose question is too long for a title.
    because: the reason of a result, if not the first sentences of the page's; brief: a long guess in fewer words;
    summary: the five lines. By their titles: code, the functions of a listing; drawn, the name of a diagram and lines.
    writes: by its section, where learners write: a title, the function to begin with, the task and what is checked.
    said: the lines of a section's idea, if not the first sentences of the page's. checked: the checks that end a
    section; all others come last. formula: the titles of the slides with the formulas; limits: what these assume and
    when they break, and fails, where the model fails, if not the first words of the page's.
    """

    ideas: Mapping[str, str]
    shown: Mapping[str, str]
    tables: Mapping[str, str] = {}
    figures: Mapping[str, int] = {}
    settings: Mapping[str, Mapping[str, Any]] = {}
    formulas: Mapping[str, Sequence[str]] = {}
    answered: Mapping[str, str] = {}
    asked: Mapping[str, str] = {}
    because: Mapping[str, str] = {}
    brief: Mapping[str, str] = {}
    summary: Sequence[str] = ()
    code: Mapping[str, Sequence[str]] = {}
    drawn: Mapping[str, Sequence[str]] = {}
    writes: Mapping[str, Sequence[str]] = {}
    said: Mapping[str, Sequence[str]] = {}
    checked: Mapping[str, Sequence[str]] = {}
    formula: Sequence[str] = ()
    limits: Sequence[str] = ()
    fails: Sequence[str] = ()


def lesson_of(text: str) -> Lesson:
    """Return the lesson that a notebook asks for; raises SpecError where it asks for none."""
    lesson: Lesson = import_module(f"{_folder(text)}.questions").lesson
    return lesson


def titles_of(text: str) -> Titles:
    """Return the titles of a notebook's slides, from the slides.toml of its module."""
    folder = Path(str(import_module(_folder(text)).__file__)).parent
    return Titles(**tomllib.loads((folder / "slides.toml").read_text("utf-8")))


def derivations(text: str) -> Sequence[Derivation]:
    """Return the derivations of a notebook's module, or none; raises SpecError where it asks for no lesson."""
    name = f"{_folder(text)}.derivation"
    found: Sequence[Derivation] = import_module(name).DERIVATIONS if find_spec(name) else ()
    return found


def diagrams_of(text: str) -> Mapping[str, Callable[[], Diagram]]:
    """Return what draws the ideas of a notebook's sections, and the questions without a figure, by their names."""
    name = f"{_folder(text)}.diagrams"
    found: Mapping[str, Callable[[], Diagram]] = import_module(name).DIAGRAMS
    return found


def _folder(text: str) -> str:
    """Return the package of the module whose questions a notebook asks."""
    found = QUESTIONS.search(text)
    if not found:
        raise SpecError("the notebook imports `ask` from no questions of a module.")
    return found[1]
