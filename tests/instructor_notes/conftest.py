"""What tests of the course's material share."""

from functools import cache

import pytest

from lib_dlhpc.teaching.designs import design
from lib_dlhpc.teaching.questions import exam


@pytest.fixture(scope="session")
def questions(repository):
    """The exam questions of a module, in the version of a seed."""
    folder = repository / "instructor_notes" / "exam"
    known = cache(lambda name, seed: exam(folder / f"{name}.py", seed))
    return lambda name, seed=0: known(name, seed)


@pytest.fixture(scope="session")
def problems(repository):
    """The design problem of a module, in the version of a seed."""
    folder = repository / "instructor_notes" / "design"
    known = cache(lambda name, seed: design(folder / f"{name}.py", seed))
    return lambda name, seed=0: known(name, seed)


@pytest.fixture
def page(repository):
    """The text of one of the instructor notes."""
    return lambda name: (repository / "instructor_notes" / f"{name}.md").read_text("utf-8")
