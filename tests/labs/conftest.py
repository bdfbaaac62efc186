"""Labs as learners have them: checks by folder, starters out of their notebooks, solutions by name."""

import importlib.util
import json
import sys

import pytest
from lab_answers import run_cell


def module_at(path):
    """The module in a file, under a name that no other has: every lab has its checks.py."""
    name = "_".join(path.with_suffix("").parts[-2:])
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def checks(repository):
    """A function: the checks of the lab in that folder."""
    return lambda lab: module_at(repository / "labs" / lab / "checks.py")


@pytest.fixture(scope="session")
def solution(repository):
    """A function: the solution of the lab in that folder."""
    folder = repository / "instructor_notes" / "solutions"
    return lambda lab: module_at(folder / f"lab_{lab}.py")


@pytest.fixture(scope="module")
def own(request, checks):
    """The checks of the test file's LAB."""
    return checks(request.module.LAB)


@pytest.fixture(scope="module")
def solved(request, solution):
    """The solution of the test file's LAB."""
    return solution(request.module.LAB)


@pytest.fixture(scope="session")
def starter(repository):
    """A function: the source of the cell of a lab's notebook that holds `words`."""

    def source(lab, words="def step("):
        (path,) = (repository / "labs" / lab).glob("*.ipynb")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        (found,) = [s for s in ("".join(c["source"]) for c in cells) if s.count(words) == 1]
        return found

    return source


@pytest.fixture(scope="module")
def started(request, starter):
    """A function: the scope in which cells with these functions ran, out of the starter of the test file's LAB."""

    def run(*names, **scope):
        for name in names:
            run_cell(starter(request.module.LAB, f"def {name}("), scope)
        return scope

    return run


@pytest.fixture
def on_ranks(ranks_can_start):
    """A function: the output of a program on MPI ranks."""
    from lib_dlhpc.explore.labs.lab import run_ranks

    return run_ranks
