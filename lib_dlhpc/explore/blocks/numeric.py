"""A number to be worked out: read, judged, and answered by what went wrong with it.

A wrong number to which a known mistake leads gets the sentence that answers that mistake, any other says about how far
off it is. The hint, often the formula itself, comes with the second miss.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.question import verdict
from lib_dlhpc.spec.units import format_quantity, parse_quantity, with_unit
from lib_dlhpc.teaching.problems import SI

TOLERANCE = 0.02  # relative, of an answer and of what a mistake leads to
EXACT = 0.005  # 1,024 in place of 1,000 is a difference of 2.4%
MOST = 1e6  # of the factors that are said in numbers
BYTES = re.compile(r"\b[kKMGT]?i?(?:[bB]|bits?|bytes?)\b")
EIGHT = "8 times too {size}: 8 bits (b) are one byte (B). Convert everything to bytes first."
PREFIX = (
    "Too {size} by a factor of {factor:,.0f}: check the prefixes (m, k, M, G, T) of the numbers, and of the unit in"
    " which you answer."
)
BINARY = "Off as KiB, MiB or GiB are: k, M and G stand for powers of 1,000 here, not of 1,024."
CLOCK = (
    "Too {size} by a factor of {factor:,.0f}: convert seconds, minutes, hours and days to one unit."
)
FRACTION = "That is the fraction: multiply it by 100 to get percent."
PERCENT = "That is in percent: divide it by 100 to get the fraction."
Drawn = tuple[dict[str, Any], float, dict[str, float]]  # numbers, answer, wrong numbers by mistake


@dataclass
class Numeric:
    """The judge of a number to be worked out, see question.Judge.

    mistakes: pairs of the wrong number to which a mistake leads, and the sentence that answers it.
    missed: the wrong numbers so far; one that is given again is no second miss.
    """

    question: str
    answer: float
    unit: str = ""
    hint: str = ""
    mistakes: Sequence[tuple[float, str]] = ()
    missed: set[float] = field(default_factory=set)

    def __call__(self, text: str) -> dict[str, Any]:
        """Return the verdict on an answer; an empty one asks for the right one."""
        right = shown(self.answer, self.unit)
        if not text:
            return verdict(None, f"It is {right}. {self.hint}", final=True)
        given = number(text, self.unit)
        if math.isclose(given, self.answer, rel_tol=TOLERANCE):
            return verdict(True, f"Yes: {right}.", final=True, answer=text, value=given)
        self.missed.add(given)
        said = self.recognized(given) or distance(given, self.answer)
        hint = f" {self.hint}" if self.hint and len(self.missed) > 1 else ""
        return verdict(False, said + hint, value=given)

    def recognized(self, given: float) -> str:
        """Return the sentence of the mistake that leads nearest to a wrong number, empty without one."""
        named = [(wrong, said, TOLERANCE) for wrong, said in self.mistakes]
        for known in (named, list(self.usual())):
            found = [
                (abs(given - wrong), said)
                for wrong, said, near in known
                if math.isclose(given, wrong, rel_tol=near)
            ]
            if found:
                return min(found)[1]
        return ""

    def usual(self) -> Iterator[tuple[float, str, float]]:
        """Yield what mistakes with units lead to, their sentences, and how near a number must be."""
        if self.unit == "%":
            yield self.answer / 100, FRACTION, TOLERANCE
        if not self.unit and 0 < abs(self.answer) < 1:
            yield 100 * self.answer, PERCENT, TOLERANCE
        factors = [(1e3, PREFIX), (1e6, PREFIX), (1e9, PREFIX)]
        if self.unit in ("min", "h"):
            factors += [(60, CLOCK), (3600, CLOCK)]
        about_bytes = self.unit == "s" or BYTES.search(f"{self.question} {self.unit}")
        if about_bytes:
            factors.append((8, EIGHT))
        for factor, said in factors:
            for size, wrong in (("large", self.answer * factor), ("small", self.answer / factor)):
                yield wrong, said.format(size=size, factor=factor), TOLERANCE
        if about_bytes:
            for power in (-3, -2, -1, 1, 2, 3):
                yield self.answer * 1.024**power, BINARY, EXACT


def distance(given: float, answer: float) -> str:
    """Say whether a number is too large or too small, and by about which factor: one of 2, 5, 10, 20, 50 ..."""
    size, off = "large" if given > answer else "small", factor_between(given, answer)
    if math.isinf(off):
        return f"Too {size}."
    if off < 1.5:
        return f"Too {size}, by less than a factor of 1.5."
    if off > MOST:
        return f"Too {size}, by more than a factor of a million."
    power = 10 ** math.floor(math.log10(off))
    about = min(
        (step * power for step in (1, 2, 5, 10)), key=lambda step: abs(math.log(step / off))
    )
    return f"Too {size}, by a factor of about {about:,}."


def number(text: str, unit: str) -> float:
    """Return what was typed, in `unit`; raises SpecError if it is no number."""
    if "," in text:  # 85,2 is 85.2 in many languages, and 1,000 is 1000 in others
        raise SpecError(f"{text!r}: use a point, as in 85.2, and nothing between thousands.")
    try:
        if unit in SI:  # which may have a prefix
            return parse_quantity(text, unit)
        return parse_quantity(text.strip().removesuffix(unit).strip() or "nothing", "")
    except SpecError:
        raise SpecError(
            f"{text[:40]!r} is not a number{f' in {unit}' * bool(unit)}. Type digits, as in 2.5 or 1e6."
        ) from None


def shown(value: float, unit: str) -> str:
    """Return a number with its unit, three digits of it."""
    if unit in SI:
        return format_quantity(value, unit)
    return with_unit(f"{value:,.3g}" if abs(value) < 999.5 else f"{value:,.0f}", unit)


def factor_between(guess: float, value: float) -> float:
    """Return the factor between two numbers, at least 1; infinite when one is 0 or their signs differ."""
    if guess == value:
        return 1.0
    if guess * value <= 0:
        return math.inf
    return max(guess / value, value / guess)


def off_by(guess: float, value: float, unit: str = "") -> str:
    """Say how far a guess is off, and in which direction; "" where it is right, or no factor lies between."""
    factor, side = factor_between(guess, value), "high" if guess > value else "low"
    if factor < 1 + EXACT or math.isinf(factor):
        return ""
    if unit == "%":
        by = f"{float(f'{abs(guess - value):.2g}'):g}"
        return f"Your guess is {by} point{'s' * (by != '1')} too {side}."
    if factor < 2:
        return f"Your guess is {abs(guess / value - 1):.0%} too {side}."
    most = "more than a million" if factor > MOST else f"{float(f'{factor:.2g}'):,g}"
    return f"Your guess is too {side} by a factor of {most}."
