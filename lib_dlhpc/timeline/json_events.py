"""The JSON object form of Chrome's trace events, read one event at a time.

Only the text of the file is held, a byte a character as a rule, never its events all at once. Fractions
are Decimals: a time stamp of 19 digits is exact. Format: "Trace Event Format", Google (2016).
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.files import read_text
from lib_dlhpc.timeline.rows import MOST_TICKS

FAR = Decimal(MOST_TICKS) / 1000  # us: what is further does not fit nanoseconds
_BLANK = re.compile(r"[ \t\r\n]*")
EXPECTED = (
    "expected Chrome's trace-event JSON, an object with a list 'traceEvents', as dlhpc and"
    " torch.profiler write it"
)


class JsonTrace:
    """A trace file. `about` has what is beside the events: what follows them, once they have been read."""

    def __init__(self, path: Path) -> None:
        """Read the file up to its first event. Raises SpecError if it is no such file."""
        self.path = path
        self.about: dict[str, Any] = {}
        self._text = read_text(path)
        decoder = json.JSONDecoder(parse_float=Decimal, parse_constant=self._no_number)
        self._decode = decoder.raw_decode
        self._at = self._blank(0)
        self._done = 0
        if self._at == len(self._text):
            raise SpecError(f"{path}: empty; {EXPECTED}.")
        if self._peek() != "{":
            raise self._wrong("it does not begin with {")
        self._at += 1
        self._members()
        self._first = self._at
        if self._peek() != "[":
            raise self._wrong("it has no list 'traceEvents'" if self._peek() else "")

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events. Raises SpecError at the first one that cannot be read."""
        self._at, self._done = self._first, 0
        self._expect("[")
        if self._peek() == "]":
            self._at += 1
        else:
            while True:
                event = self._value()
                if not isinstance(event, dict):
                    raise self._wrong(f"event {self._done} is not an object")
                yield event
                self._done += 1
                if self._peek() == "]":
                    self._at += 1
                    break
                self._expect(",")
        self._expect_more()
        self._members()

    def _members(self) -> None:
        """Take the members of the object up to the events, or to its end."""
        while self._peek() != "}":
            key = self._value()
            if not isinstance(key, str):
                raise self._wrong("a member has no name")
            self._expect(":")
            if key == "traceEvents":
                return
            self.about[key] = self._value()
            self._expect_more()

    def _expect_more(self) -> None:
        if self._peek() == ",":
            self._at += 1
        elif self._peek() != "}":
            raise self._wrong()

    def _value(self) -> Any:
        try:
            value, self._at = self._decode(self._text, self._blank(self._at))
        except json.JSONDecodeError as error:
            self._at = error.pos
            raise self._wrong() from None
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise self._wrong(str(error)) from None
        return value

    def _peek(self) -> str:
        self._at = self._blank(self._at)
        return self._text[self._at : self._at + 1]

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._wrong()
        self._at += 1

    def _blank(self, at: int) -> int:
        found = _BLANK.match(self._text, at)
        return found.end() if found else at

    def _wrong(self, why: str = "") -> SpecError:
        where = f"after {self._done:,} events" if self._done else f"at character {self._at:,}"
        if not why:
            cut = self._peek() == "" or self._text.rstrip()[-1] != "}"
            rest = self._text[self._at : self._at + 20]
            why = "it ends in the middle" if cut else f"{rest!r} is not JSON there"
        return SpecError(f"{self.path}: not a trace that can be read: {why}, {where}; {EXPECTED}.")

    def _no_number(self, word: str) -> Any:
        raise ValueError(f"{word} is not a number in JSON")


def moment(value: Any, field: str) -> Decimal:
    """Return a time stamp as it is, exact. Raises TypeError or ValueError if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise TypeError(f"{field} = {value!r}: expected a number of microseconds")
    if not -FAR <= value <= FAR:
        raise ValueError(
            f"{field} = {Decimal(value):.3g}: too far from 0 to be microseconds; legal: to {FAR:.3g}"
        )
    return Decimal(value)


def number(value: Any, field: str) -> int:
    """Return a whole number as it is. Raises TypeError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} = {value!r}: expected a whole number")
    return value
