"""Hints of a lab in three stages: a first nudge, then the idea, then a step of the solution.

A lab's hints.toml maps each topic to its three hints. An opened one is an entry in the record of a learner who has
joined, without an answer, as of a guess that was skipped; its attempt is its stage.
"""

import tomllib
from pathlib import Path

from lib_dlhpc.classroom import recording
from lib_dlhpc.errors import SpecError

STAGES = ("nudge", "idea", "step")
Hints = dict[str, list[str]]  # by topic, one text a stage


def read(folder: Path) -> Hints:
    """Return the hints of a lab's folder. Raises SpecError for a file that is missing or has other than three."""
    file = folder / "hints.toml"
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{file}: {error.strerror}. Hints are in the folder of a lab.") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{file}: not valid TOML: {error}.") from None
    for topic, texts in found.items():
        if not isinstance(texts, list) or len(texts) != len(STAGES):
            raise SpecError(f"{file}: {topic!r}: expected three hints, {', '.join(STAGES)}.")
    return found


def opened(lab: str, topic: str) -> int:
    """Return how many hints on a topic the learner has opened, as their record says; 0 without a record."""
    return min(len(recording.given(lab, _question(topic))), len(STAGES))


def use(lab: str, topic: str) -> str:
    """Record that one more hint was opened; return why that failed, empty if it did not or nothing is recorded."""
    try:
        recording.record(lab, _question(topic), "hint", asked=topic)
    except OSError as error:
        return f"Not recorded: {error.strerror}."
    return ""


def _question(topic: str) -> str:
    return f"hints: {topic}"
