"""Marks of a class: one hand-in after the other, each in processes of its own; a mark for each, whatever happens."""

import hmac
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.findings import Finding, broken, passed, summary
from lib_dlhpc.labs.grading.hand_in import (
    HandIn,
    NotAllowed,
    Unreadable,
    check_imports,
    read,
    text_of,
)
from lib_dlhpc.labs.grading.labs import COMPUTES, Given, Lab, folder_of, lab_of
from lib_dlhpc.labs.grading.remote import Raised
from lib_dlhpc.labs.grading.torch_world import CheckedWorld
from lib_dlhpc.labs.grading.workers import Server, server
from lib_dlhpc.labs.mistakes import LabError

UNHELD = (
    "This system does not keep hand-ins from {}, only Python does: grade in a container, or under an account of"
    " its own (instructor_notes/grading.md)."
)
SECONDS = 60  # for a hand-in
OWN, HIDDEN = "own", "own and hidden"
SHOWN = 100  # characters of what it printed, in a note
IN_TORCH = " (PyTorch)"  # ends the lab of a mark
WORST_FIRST = ("refused", "timeout", "crashed")


@dataclass(frozen=True)
class Mark:
    """What a hand-in gets. status: passed, failed, timeout, crashed, unreadable, refused, or error (of ours).

    variants: on which it was checked, OWN or HIDDEN.
    """

    folder: Path
    learner: str
    lab: str
    passed: int
    total: int
    status: str
    note: str
    findings: tuple[Finding, ...] = ()
    text: str = ""
    variants: str = OWN


def learners(folder: Path) -> list[Path]:
    """Return the folders of the learners. Raises SpecError if there are none."""
    if not folder.is_dir():
        raise SpecError(f"{folder}: expected a folder with a folder for each learner.")
    found = sorted(each for each in folder.iterdir() if each.is_dir() and each.name[0] not in "._")
    if not found:
        raise SpecError(f"{folder}: it contains no folder of a learner.")
    return found


def grades(
    folder: Path,
    lab: str,
    key: bytes = b"",
    seconds: int = SECONDS,
    note: Callable[[str], None] = lambda words: None,
    torch: bool = False,
) -> Iterator[Mark]:
    """Yield the mark of each learner. key: the instructor's, for variants that no learner knows. torch: in PyTorch.

    note: called where the system does not hold processes back from something. Raises SpecError.
    """
    lab = folder_of(lab).name
    known, checks = lab_of(lab, torch)
    title = f"{lab}{IN_TORCH}" if torch else lab
    if key and known.again is None:
        raise SpecError(
            f"--key: everything in {lab} depends on the learner's own variant; there is no hidden variant."
        )
    places, own = learners(folder), None
    named: dict[str, str] = {}  # learner -> folder
    with ExitStack() as stack:
        for place in places:
            if own is None or not own.answers():
                own = stack.enter_context(
                    server((*COMPUTES, *known.imports), seconds, known.files, torch)
                )
                if own.unheld:
                    note(UNHELD.format(" or ".join(own.unheld)))
            mark = _grade(place, title, known, checks, key, seconds, own)
            first = named.setdefault(mark.learner.casefold(), place.name)
            twice = "" if first == place.name else f" The hand-in in {first} has this name too."
            yield replace(mark, note=mark.note + twice, variants=HIDDEN if key else OWN)


def name_of(folder: Path) -> str:
    """Return a learner's name: of learner.json, or the folder's. Raises Unreadable, NotAllowed."""
    file = folder / "learner.json"
    if not file.is_symlink() and not file.exists():
        return folder.name
    try:
        name = json.loads(text_of(file))["name"]
    except (ValueError, KeyError, TypeError, RecursionError):
        name = None
    if not isinstance(name, str) or not name.strip() or len(name) > 100:
        raise Unreadable('learner.json: expected {"name": "..."}.')
    return " ".join(name.split())


def _other_name(file: str, expected: Sequence[str]) -> str:
    """Return a note on a file that is named after somebody else: the learner may have worked on that variant."""
    stem = Path(file).stem
    if stem.casefold() in (each.casefold() for each in expected):
        return ""
    return (
        f" The file is {file}, and the variant that of {expected[1]}: if the notebook's NAME was {stem!r},"
        f' write {{"name": "{stem}"}} into learner.json and grade again.'
    )


def secret(file: str | None) -> bytes:
    """Return the instructor's secret of a file. Raises SpecError if it is too short to be one."""
    if file is None:
        return b""
    key = Path(file).read_bytes().strip()
    if len(key) < 16:
        raise SpecError(
            f"--key {file}: {len(key)} bytes; expected 16 or more, such as from `openssl rand -hex 16`."
        )
    return key


def hidden_name(key: bytes, name: str) -> str:
    """Return the name whose variant is checked as well: without the key nobody can compute it."""
    return hmac.new(key, " ".join(name.split()).casefold().encode(), "sha256").hexdigest()


def _grade(
    place: Path, lab: str, known: Lab, checks: Any, key: bytes, seconds: int, own: Server
) -> Mark:
    name, text, other = place.name, "", ""

    def mark(status: str, note: str, findings: Sequence[Finding] = ()) -> Mark:
        right = sum(bool(each.right) for each in findings)
        note += other
        return Mark(place, name, lab, right, known.laws, status, note, tuple(findings), text)

    try:
        name = name_of(place)
        file, text = read(place, name, known.usual)
        other = _other_name(file, (Path(known.usual).stem, name, place.name))
        if known.usual.endswith(".toml"):
            return mark(*_judged(lambda _: {"text": lambda: text}, known, checks, name, key))
        check_imports(text, file, (*COMPUTES, *known.imports))
        with TemporaryFile() as output:
            hand_in = HandIn(own, file, text, seconds, output)
            functions = partial(_given, hand_in, known)
            try:
                status, note, found = _judged(functions, known, checks, name, key)
                return mark(*_as_it_ended(hand_in, status, note), found)
            finally:
                hand_in.close()
    except Unreadable as error:
        return mark("unreadable", str(error))
    except NotAllowed as error:
        return mark("refused", str(error))
    except Exception as error:  # one learner's hand-in must not cost the others their marks
        return mark("error", f"The checks stopped: {type(error).__name__}: {error}")


def _given(hand_in: HandIn, known: Lab, names: Sequence[str]) -> Given:
    """Return what is judged of a hand-in. Raises Unreadable, Crashed, TimedOut."""
    functions = hand_in.functions(names, known.streams)
    return {"world": CheckedWorld(hand_in)} if known.torch else functions


def _judged(
    functions: Callable[[Sequence[str]], Given], known: Lab, checks: Any, name: str, key: bytes
) -> tuple[str, str, Sequence[Finding]]:
    """Return status, note and findings of what is handed in."""
    found: Sequence[Finding] = ()
    try:
        given = functions(known.names)
        found = known.judge(checks, given, name)
        if key and known.again is not None:
            found = _both(found, known.again(checks, given, hidden_name(key, name)))
    except (LabError, SpecError, Raised) as error:
        found = [*found, broken("It can be checked", f"{type(error).__name__}: {error}")]
    if passed(found):
        return "passed", summary(found), found
    first = next((each for each in found if each.right is False), found[0])
    return "failed", f"{first.law}: {first.words}", found


def _as_it_ended(hand_in: HandIn, status: str, note: str) -> tuple[str, str]:
    """Return status and note of a hand-in that did not pass, by how its processes ended and what they printed."""
    if status == "passed":
        return status, note
    if hand_in.ends:
        status, note = min(hand_in.ends, key=lambda end: WORST_FIRST.index(end[0]))
    printed = cut(hand_in.printed(), SHOWN)
    return status, f"{note} It printed: {printed}" if printed else note


def cut(text: str, most: int) -> str:
    """Return a text in one line of at most `most` characters, cut behind a word if it is longer."""
    words = " ".join(text.split())
    if len(words) <= most:
        return words
    whole, _, _ = words[: most - 1].rpartition(" ")
    return f"{whole or words[: most - 2]} …"


def _both(own: Sequence[Finding], hidden: Sequence[Finding]) -> list[Finding]:
    """Return the findings on a learner's variant; one that fails on the hidden variant takes its place."""
    others = {each.law: each for each in hidden}
    result = []
    for each in own:
        other = others.get(each.law, each)
        fails = each.right and not other.right
        words = f"On a variant that you have not seen: {other.words}"
        result.append(other._replace(words=words) if fails else each)
    return result
