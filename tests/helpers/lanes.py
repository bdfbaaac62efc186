"""Which tests a worker runs one after the other, and in which order workers take files.

Tests on ranks exclude each other and tests in a browser (turns.py): of two workers that have them, one waits. So all of
tests/mpi is one unit of work and begins first. Beside it run tests of one process, then folders that start their own
runs; after them notebooks, then pages, and at the end quick files, so that the workers end together. Files that need
many published rows with their predictions are one unit, too: one process predicts them (published_rows.py).
"""

from pathlib import Path

# Folders that are one unit of work: a Slurm, too, is started once; exams, problems and slides are computed once.
LANES = ("mpi", "cluster", "instructor_notes", "explore/slides")
ONE_PROCESS = ("simulation", "training", "prediction", "repository")
RUNS = ("explore", "labs", "calibration", "cluster", "launch", "comparison", "commands")
ROWS = (
    "prediction/validation/test_validate.py",
    "prediction/validation/test_host.py",
    "prediction/validation/test_trust.py",
)
ROWS += (
    "repository/test_peers.py",
    "repository/test_readme.py",
    "docs/test_paper.py",
    "test_cli.py",
)
ROWS += (
    "notebooks/test_claims_05.py",
    "notebooks/test_claims_10.py",
    "explore/front/test_front.py",
)
FIRST = ("mpi", *ONE_PROCESS, *RUNS)
PAGES = "browser"


def lane_of(nodeid: str) -> str:
    """Return the unit of work of a test: its folder if that is a lane, the first of ROWS for these, else its file."""
    file = nodeid.partition("::")[0]
    top, *rest = file.split("/")
    if top == "tests" and "/".join(rest) in ROWS:
        return f"{top}/{ROWS[0]}"
    lanes = (each for each in LANES if top == "tests" and file.startswith(f"{top}/{each}/"))
    return next((f"{top}/{each}" for each in lanes), file)


def order_of(path: Path, tests: Path) -> int:
    """Return the sort key of a test file: FIRST in their order, notebooks of the course, pages, all others."""
    if not path.is_relative_to(tests):
        return len(FIRST)
    folder = path.relative_to(tests).parts[0]
    if folder in FIRST:
        return FIRST.index(folder)
    return len(FIRST) + (1 if folder == PAGES else 2)
