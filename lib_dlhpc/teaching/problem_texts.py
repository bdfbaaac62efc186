"""Problems of a module: their texts in a problems.toml, their numbers in the problems.py beside it, joined by name.

    [ring]
    title = "A ring"
    text = "{P} ranks allreduce {LONG:B} with a ring. How long does it take?"
    steps = [["Rounds: 2 (p - 1)", "rounds"], ["Together", "total", "s"]]    # what to do, its number, its unit
    traps = [["once", "Each round pays the latency."]]                       # a wrong number, and what to say to it
    kind = "worked"                                                          # or "faded": where a topic begins

    PROBLEMS = written(globals(), ring=Numbers(seconds("ring", P, LONG), rounds=2 * (P - 1), total=..., once=...))

The first number is the answer of the library. Braces are those of `filled`: they hold numbers of the problem, or names
of the file, such as P, or of the table `shared`, whose texts several problems have in common.
"""

import tomllib
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.teaching.filled import filled
from lib_dlhpc.teaching.problems import FADED, WORKED, Problem, Step, Trap

KINDS = {"": "", "worked": WORKED, "faded": FADED}
KEYS = ("title", "text", "kind", "steps", "traps")


class Numbers:
    """The numbers of one problem: what the library answers, and those of its text, steps and traps by name."""

    def __init__(self, answer: float, **named: Any) -> None:
        self.answer, self.named = answer, named


def written(names: Mapping[str, Any], /, **numbers: Numbers) -> list[Problem]:
    """Return the problems of the problems.toml beside a file, in its order. names: of the file.

    Raises SpecError, with the file, the problem and the legal names: where a problem has no text or no numbers, where
    a name or a key is unknown, and where a number is unused.
    """
    path = Path(names["__file__"]).with_suffix(".toml")
    texts = tomllib.loads(path.read_text("utf-8"))
    shared = {name: filled(text, names) for name, text in texts.pop("shared", {}).items()}
    for name in numbers:
        _check(f"{path} has no problem", name, texts)
    for name in texts:
        _check(f"{path.with_suffix('.py')} has no numbers for", name, numbers)
    own = {
        name: _Names(f"{path}, {name}", each.named, {**names, **shared})
        for name, each in numbers.items()
    }
    return [_problem(text, numbers[name].answer, own[name]) for name, text in texts.items()]


def _problem(text: Mapping[str, Any], answer: float, names: "_Names") -> Problem:
    for key in text:
        _check(f"{names.where}: no key is called", key, KEYS)
    kind = text.get("kind", "")
    _check(f"{names.where}: kind =", kind, KINDS)
    try:
        found = Problem(
            filled(text["title"], names),
            filled(text["text"], names),
            answer,
            *(Step(filled(do, names), names[of], *unit) for do, of, *unit in text["steps"]),
            kind=KINDS[kind],
            traps=[Trap(names[of], filled(said, names)) for of, said in text.get("traps", ())],
        )
    except SpecError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise SpecError(f"{names.where}: {type(error).__name__}: {error}") from error
    for name in names.own:
        _check(f"{names.where}: nothing uses the number", name, names.used)
    return found


class _Names(dict[str, Any]):
    """What a problem may name, its own numbers before names of the file. used: what it has named; where: for errors."""

    def __init__(self, where: str, own: Mapping[str, Any], shared: Mapping[str, Any]) -> None:
        super().__init__({**shared, **own})
        self.where, self.own, self.used = where, own, set[str]()

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            plain = (each for each in self if isinstance(self.get(each), Real | str))
            legal = [each for each in plain if not each.startswith("_")]
            _check(f"{self.where}: nothing is called", name, legal)
        self.used.add(name)
        return super().__getitem__(name)


def _check(head: str, name: str, legal: Iterable[str]) -> None:
    """Refuse a name that is not legal."""
    if name not in (names := list(legal)):
        raise SpecError(listed(f"{head} {name!r}:", name, names))
