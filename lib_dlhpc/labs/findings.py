"""Findings of a lab: one law each, which holds or not, with a hint at what is wrong but not at the solution.

findings = [kept("Replicas agree", "After three steps all weights are the same."), ...]
print(as_text(findings))
"""

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32


class Finding(NamedTuple):
    """The result of a check. right: None if it could not be checked yet."""

    law: str
    right: bool | None
    words: str


def kept(law: str, words: str) -> Finding:
    """The law holds."""
    return Finding(law, True, words)


def broken(law: str, words: str) -> Finding:
    """The law does not hold."""
    return Finding(law, False, words)


def later(law: str, words: str = "Checked once the laws above hold.") -> Finding:
    """The law cannot be checked yet."""
    return Finding(law, None, words)


def passed(findings: Sequence[Finding]) -> bool:
    """Return whether all laws hold."""
    return all(finding.right for finding in findings)


def summary(findings: Sequence[Finding]) -> str:
    """Return how many laws hold, as a sentence."""
    count = sum(bool(finding.right) for finding in findings)
    if passed(findings):
        return f"All {count} hold."
    return f"{count} of {len(findings)} hold; not done yet."


def mark(finding: Finding) -> str:
    """Return the sign of a finding."""
    return "·" if finding.right is None else "✓" if finding.right else "✗"


def as_text(findings: Sequence[Finding]) -> str:
    """Return the findings as lines, for a terminal."""
    lines = [f"{mark(each)} {each.law}. {each.words}" for each in findings]
    return "\n".join([*lines, summary(findings)])


def seed_of(name: str) -> int:
    """Return a seed derived from a learner's name, the same on every machine."""
    return crc32(" ".join(name.split()).casefold().encode())
