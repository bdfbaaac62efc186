"""What this process records: a kernel of one visitor, or a check of a lab in a terminal.

Every question and every check calls `record`; it writes nothing before the learner has consented. Within a class on one
machine (environment variable DLHPC_CLASS, set for its kernels) the learner is who the page says by its cookie,
otherwise the one of this machine.
"""

import os
from pathlib import Path
from typing import Any

from lib_dlhpc.classroom import learner
from lib_dlhpc.classroom import record as file
from lib_dlhpc.classroom.classes import member
from lib_dlhpc.classroom.entry import Entry
from lib_dlhpc.classroom.learner import Learner

CLASS = "DLHPC_CLASS"
NOBODY = "-"  # as value of CLASS: visitors of these pages are not the learner of this machine
_visitor = {"token": ""}  # of this process
_opened: set[tuple[str, str]] = set()


def enter(token: str) -> None:
    """Say whose page it is. token: of the cookie, empty without one."""
    _visitor["token"] = token


def present() -> Learner | None:
    """Return whose answers are recorded; None without consent."""
    place = os.environ.get(CLASS, "")
    if place == NOBODY:
        return None
    return member(Path(place), _visitor["token"]) if place else learner.at_home()


def seed(module: str, question: str) -> int | None:
    """Return the seed of this learner's variant of a question; None without a learner."""
    found = present()
    return learner.seed(found.token, f"{module} {question}") if found and module else None


def record(module: str, question: str, kind: str, **answer: Any) -> Entry | None:
    """Add an answer to the learner's record; None if nobody's is kept. Raises OSError where it cannot be written."""
    found = present()
    if found is None or not module:
        return None
    entry = file.add(found.folder, found.id, module, question, kind, **answer)
    if found.server:
        from lib_dlhpc.classroom.sending import soon  # most have no class to send to

        soon()
    return entry


def opened(module: str) -> None:
    """Record that a page was opened, once in this process for each learner."""
    found = present()
    if found and module and (found.id, module) not in _opened:
        _opened.add((found.id, module))
        record(module, "", "open")


def given(module: str, question: str) -> list[Entry]:
    """Return the learner's answers to a question, in order."""
    found = present()
    if found is None or not module:
        return []
    return [
        entry
        for entry in file.entries(found.folder)
        if (entry.module, entry.question) == (module, question)
    ]


def last(module: str, question: str) -> Entry | None:
    """Return the learner's last answer to a question; None without one."""
    return next(reversed(given(module, question)), None)
