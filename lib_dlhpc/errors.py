"""SpecError, raised for invalid input, and its nearest-name hint."""

from collections.abc import Iterable
from difflib import get_close_matches


class SpecError(ValueError):
    """Invalid input: the message names the field, the offending value and the legal ones."""


def suggest(name: str, legal: Iterable[str]) -> str:
    """Return a sentence with the legal name nearest to `name`, or an empty string."""
    close = get_close_matches(str(name), [str(item) for item in legal], n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
