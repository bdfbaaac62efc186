"""SpecError, raised for invalid input: checks of counts, its nearest-name hint, and why a file cannot be read."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any


class SpecError(ValueError):
    """Invalid input: the message names the field, the offending value and the legal ones.

    where: of fields that are arrays, which elements are illegal, as an array that broadcasts to theirs; None: unknown.
    """

    def __init__(self, message: str = "", where: Any = None) -> None:
        super().__init__(message)
        self.where = where


class FieldError(SpecError):
    """A field that does not exist, or a value outside of its own range: no other field makes it legal."""


def check_counts(least: int = 1, /, **counts: Any) -> None:
    """Raise SpecError unless each count, by its name, is an integer of Python or numpy, and at least `least`."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise SpecError(f"{name} = {value!r}: expected a whole number, at least {least}.")


def reason_of(error: Exception) -> str:
    """Return why a file cannot be read, in words: without the number of an error and the path."""
    return getattr(error, "strerror", None) or str(error)


def listed(head: str, value: Any, legal: Iterable[Any], lead: str = "legal:") -> str:
    """Return a message for a value that is not among `legal`: first the nearest of them, which a long list would hide.

    head: what comes before the list, with its colon or semicolon, such as "fidelity = 'event':".
    """
    names = [str(each) for each in legal]
    if near := suggest(value, names):
        head = head.removesuffix(";") + "." * head.endswith(";") + near
        lead = lead[0].upper() + lead[1:]
    return f"{head} {lead} {', '.join(names)}."


def suggest(name: str, legal: Iterable[str], cutoff: float = 0.5) -> str:
    """Return a sentence with the legal name nearest to `name`, or an empty string."""
    near = nearest(str(name), [str(item) for item in legal], cutoff)
    return f" Did you mean {near!r}?" if near else ""


def nearest(name: str, legal: Sequence[str], cutoff: float) -> str:
    """Return `name` if it is legal, else the first name that it begins, else the nearest one, or an empty string."""
    from difflib import get_close_matches  # only for errors

    small = {each.lower(): each for each in legal}  # FP8 is near fp8
    own = name.lower()
    begun = [each for each in small if len(own) > 2 and each.startswith(own)]  # h100
    near = [own] if own in small else begun or get_close_matches(own, small, n=1, cutoff=cutoff)
    return small[near[0]] if near else ""
