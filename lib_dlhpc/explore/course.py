"""The path through the course: its modules in reading order, what each asks and needs, and the labs that go with it."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


class Module(NamedTuple):
    """One module: its notebook, what it is called and asks, how long it takes, and what it builds on."""

    file: str  # in modules/
    folder: str  # in explore/
    number: str
    title: str
    question: str
    minutes: int
    needs: Sequence[str] = ()  # numbers of modules
    labs: Sequence[str] = ()  # folders in labs/

    @property
    def name(self) -> str:
        """The file's name without its ending: the key of answers kept in a browser."""
        return self.file.removesuffix(".ipynb")

    @property
    def heading(self) -> str:
        """Its number and title, as its deck of slides is called."""
        return f"{self.number} {self.title}"


class Lab(NamedTuple):
    """One lab: its title and how long it takes."""

    title: str
    minutes: int


LABS = {folder: Lab(**lab) for folder, lab in TEXTS["labs"].items()}
EXPLORER = "00_what_if_explorer.ipynb"
PATH = tuple(Module(**module) for module in TEXTS["module"])
# Folders in explore/, as records name modules, and the modules' numbers.
RECORDED = {module.folder: module.number for module in sorted(PATH, key=lambda each: each.number)}


def place(file: str) -> tuple[Module | None, Module | None, Module | None]:
    """Return the module before, the module of this file, and the one after; None where there is none."""
    files = [module.file for module in PATH]
    if file not in files:
        return None, None, None
    at = files.index(file)
    before = PATH[at - 1] if at else None
    return before, PATH[at], PATH[at + 1] if at + 1 < len(PATH) else None


def title_of(recorded: str) -> str:
    """Return what a module or a lab is called in grade files: module 02 data parallel, lab 01 data parallel step."""
    if recorded in LABS:
        return f"lab {recorded}".replace("_", " ")
    return " ".join(filter(None, ("module", RECORDED.get(recorded), recorded.replace("_", " "))))
