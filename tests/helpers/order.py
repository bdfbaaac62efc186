"""Which file of tests a worker takes next: none that would wait for its turn beside what others are at.

Two workers at files of tests on ranks would take turns, test by test, and one core would idle; see turns.py.
So such files go first, one at a time, beside tests that are but one process; what starts programs of its own
comes after them. Notebooks, each short, fill up the end.
"""

from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

import pytest
from turns import ALONE, SHARED
from xdist.scheduler import LoadFileScheduling

BESIDE = {  # a file of the first waits for those of the others
    ALONE: {ALONE, SHARED},
    SHARED: {ALONE},
}
BUSY = (ALONE, SHARED, "cluster", "launch", "labs", "explore", "calibrate", "commands")


def next_file(waiting: Iterable[str], elsewhere: Iterable[str]) -> str:
    """Return which of the files that wait goes best beside those that other workers have; of equals the first."""
    others = {_folder(path) for path in elsewhere}

    def cost(path: str) -> tuple[bool, bool, int]:
        folder, notebook = _folder(path), path.endswith(".ipynb")
        would_wait = bool(BESIDE.get(folder, set()) & others)
        place = BUSY.index(folder) if folder in BUSY else len(BUSY) + notebook
        return would_wait, ALONE in others and (folder in BUSY or notebook), place

    return min(waiting, key=cost)


def _folder(path: str) -> str:
    parts = PurePosixPath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else ""


class FilesThatFit(LoadFileScheduling):
    """Files go to workers one by one, as with --dist loadfile, but in an order of their own."""

    def _assign_work_unit(self, node: object) -> None:
        at_work = [work for other, work in self.assigned_work.items() if other is not node]
        elsewhere = [
            path for work in at_work for path, tests in work.items() if not all(tests.values())
        ]
        self.workqueue.move_to_end(next_file(self.workqueue, elsewhere), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Callable[..., None]) -> object:
    """Return the order for `--dist loadfile`."""
    return FilesThatFit(config, log) if config.getvalue("dist") == "loadfile" else None
