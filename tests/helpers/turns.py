"""A fair lock for the cores: tests on many ranks exclude each other and tests in a browser.

Eight busy ranks on two cores starve a page, so its tests would time out. A test on ranks excludes those in a browser,
which share their turn; the order is FIFO. All other tests run beside either: ranks that wait sleep (launch/mpi.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
except ImportError:  # Windows has no such lock: tests take no turns there
    flock = None

ALONE, SHARED = "mpi", "browser"  # folders of tests


def turn_of(path: Path, tests: Path) -> str:
    """Return ALONE, SHARED, or an empty text for a test file that needs no turn."""
    folder = path.relative_to(tests).parts[0] if path.is_relative_to(tests) else ""
    return folder if folder in (ALONE, SHARED) else ""


@contextmanager
def turn(kind: str, place: Path) -> Iterator[None]:
    """Hold the machine, exclusively or shared, within the block; `place` is a folder for the locks."""
    if not kind or flock is None:
        yield
        return
    with open(place / "turn.lock", "w") as machine, open(place / "queue.lock", "w") as queue:
        flock(queue, LOCK_EX)  # else tests that share would keep passing on what they hold
        flock(machine, LOCK_EX if kind == ALONE else LOCK_SH)
        flock(queue, LOCK_UN)
        yield
