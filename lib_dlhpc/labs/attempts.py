"""Attempts at a lab: what a check found, in the record of a learner who has joined."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from lib_dlhpc.classroom import recording
from lib_dlhpc.labs.findings import Finding, as_text, passed

LAB = re.compile(r"\d\d_\w+")


def lab_here() -> str:
    """Return the lab in whose folder, wherever it is, a notebook or a checks.py runs; empty outside of one."""
    places = (Path.cwd(), Path(sys.argv[0]).resolve().parent)
    return next((place.name for place in places if _is_lab(place)), "")


def _is_lab(place: Path) -> bool:
    at_home = place.parent.name == "labs" or (place / "checks.py").is_file()
    return at_home and LAB.fullmatch(place.name) is not None


def attempted(findings: Sequence[Finding], title: str = "") -> str:
    """Record the findings of a check as one attempt; return a sentence that says whether it is, for who has joined.

    title: which of a lab's checks it was.
    """
    broken = [finding.law for finding in findings if finding.right is False]
    about = {"answer": "; ".join(broken), "right": passed(findings), "final": passed(findings)}
    lab = lab_here()
    if recording.present() is None:
        return ""
    if not lab:
        return (
            f"This attempt is not in your record: {Path.cwd().name} is not the name of a lab; rename the folder to a"
            " name from labs/, such as 01_data_parallel_step."
        )
    try:
        entry = recording.record(lab, title or "checks", "lab", **about)
    except OSError as error:
        return f"This attempt is not in your record: {error.filename}: {error.strerror}."
    return f"Attempt {entry.attempt} at {lab} is in your record." if entry else ""


def report(findings: Sequence[Finding], title: str = "") -> str:
    """Record the findings of a check, and return them as lines for a terminal."""
    said = attempted(findings, title)
    return "\n".join([as_text(findings), *([said] if said else [])])
