"""What tests of the course's material share."""

import pytest

from lib_dlhpc.teaching.questions import read


@pytest.fixture(scope="session")
def questions(repository):
    """The exam questions of a module."""
    return lambda name: read(repository / "instructor_notes" / "exam" / f"{name}.py", "QUESTIONS")
