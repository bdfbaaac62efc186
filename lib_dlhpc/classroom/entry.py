"""One answer of a learner, as a line of JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from lib_dlhpc.errors import SpecError

KINDS = ("open", "guess", "choice", "check", "compute", "step", "lab", "hint")
UNANSWERED = ("open", "hint")  # kinds that answer nothing
LONGEST = 20_000  # characters of a text
MOST, LARGEST = 1_000_000, 1e100  # of attempts, and of numbers
TEXTS = ("id", "learner", "module", "question", "kind", "answer", "time", "result", "asked")


@dataclass(frozen=True)
class Entry:
    """What a learner answered, and when. kind: one of KINDS; "open": a page was opened, "lab": a check of a lab,
    "hint": a further hint of a lab was opened, of which the attempt is the stage.

    id: of this entry alone, so that it counts once however often it is sent. attempt: from 1, for each question; 0 of
    a page. right: None is neither. value: the answer as a number, where it is one. result: what is right, once the
    learner knows. asked: the question as this learner read it. time: ISO 8601, UTC.
    """

    id: str
    learner: str
    module: str
    question: str
    kind: str
    attempt: int
    answer: str
    right: bool | None
    time: str
    final: bool = False
    value: float | None = None
    result: str = ""
    asked: str = ""

    @classmethod
    def read(cls, line: str | bytes) -> "Entry":
        """Return the entry of a line. Raises SpecError that names what is wrong."""
        try:
            given = json.loads(line)
        except ValueError:
            raise SpecError("an entry of a record: expected a line of JSON.") from None
        if not isinstance(given, dict):
            raise SpecError("an entry of a record: expected a JSON object.")
        given["attempt"] = given.pop("try", None)
        try:
            entry = cls(**given)
        except TypeError as error:
            raise SpecError(f"an entry of a record: {error}.") from None
        _check(entry)
        return entry

    def line(self) -> str:
        """Return the entry as a line of JSON, without the line break."""
        named = {("try" if key == "attempt" else key): value for key, value in asdict(self).items()}
        return json.dumps(named, ensure_ascii=False)


def _check(entry: Entry) -> None:
    for name in TEXTS:
        text: Any = getattr(entry, name)
        if not isinstance(text, str) or len(text) > LONGEST or _halved(text):
            raise SpecError(f"{name}: expected a text of at most {LONGEST:,} characters.")
    if not entry.id or not entry.learner:
        raise SpecError("id, learner: expected a text that is not empty.")
    if entry.kind not in KINDS:
        raise SpecError(f"kind = {entry.kind!r}: expected one of {', '.join(KINDS)}.")
    if type(entry.attempt) is not int or abs(entry.attempt) > MOST:
        raise SpecError(f"try = {entry.attempt!r}: expected an integer.")
    if entry.right not in (True, False, None) or type(entry.final) is not bool:
        raise SpecError("right: expected true, false or null; final: true or false.")
    if entry.value is not None and not (
        type(entry.value) in (int, float) and abs(entry.value) <= LARGEST
    ):
        raise SpecError(f"value = {entry.value!r}: expected a number up to {LARGEST:g}, or null.")


def _halved(text: str) -> bool:
    """Return whether a text has half of a surrogate pair, which no file and no database takes."""
    return any("\ud800" <= each <= "\udfff" for each in text)
