"""Findings of a lab: one law each, which holds or not, with a hint at what is wrong but not at the solution.

findings = [kept("Replicas agree", "After three steps all weights are the same."), ...]
print(as_text(findings))
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from lib_dlhpc.labs.mistakes import LabError


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


def once(law: str, checks: Iterable[tuple[str, Callable[[], str]]], words: str) -> Finding:
    """Return whether a law holds in every check: where it runs, and a function that says what is wrong."""
    for about, check in checks:
        try:
            wrong = check()
        except LabError as error:
            wrong = str(error)
        if wrong:
            return broken(law, f"{about}: {wrong}")
    return kept(law, words)


def in_turn(*makers: Callable[[], Finding]) -> list[Finding]:
    """Return findings up to the first that is broken; those behind it have to wait."""
    found: list[Finding] = []
    for make in makers:
        found.append(make())
        if not found[-1].right:
            break
    return found


def waiting(found: list[Finding], laws: Iterable[str]) -> list[Finding]:
    """Return the findings, with the laws that were not reached as not looked at yet."""
    return [*found, *(later(law) for law in list(laws)[len(found) :])]
