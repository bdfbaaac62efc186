"""Findings of a lab: one law each, kept or not, and words that say what is wrong but not what to write.

findings = [kept("Replicas agree", "After three steps all weights are the same."), ...]
print(as_text(findings))
"""

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32


class Finding(NamedTuple):
    """What a check has found. right: None where it could not be looked at yet."""

    law: str
    right: bool | None
    words: str


def kept(law: str, words: str) -> Finding:
    """The law holds."""
    return Finding(law, True, words)


def broken(law: str, words: str) -> Finding:
    """The law does not hold."""
    return Finding(law, False, words)


def later(law: str, words: str = "Looked at as soon as the laws above hold.") -> Finding:
    """The law cannot be looked at yet."""
    return Finding(law, None, words)


def passed(findings: Sequence[Finding]) -> bool:
    """Return whether all laws hold."""
    return all(finding.right for finding in findings)


def summary(findings: Sequence[Finding]) -> str:
    """Return how many laws hold, as a sentence."""
    count = sum(bool(finding.right) for finding in findings)
    if passed(findings):
        return f"All {count} hold."
    return f"{count} of {len(findings)} hold; not yet done."


def mark(finding: Finding) -> str:
    """Return the sign of a finding."""
    return "·" if finding.right is None else "✓" if finding.right else "✗"


def as_text(findings: Sequence[Finding]) -> str:
    """Return the findings as lines, for a terminal."""
    lines = [f"{mark(each)} {each.law}. {each.words}" for each in findings]
    return "\n".join([*lines, summary(findings)])


def seed_of(name: str) -> int:
    """Return the number that a learner's name stands for: the same on every machine and every day."""
    return crc32(" ".join(name.split()).casefold().encode())
