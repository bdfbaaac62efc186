"""The decks of all modules, made once."""

import pytest

from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.hybrid_parallel import questions
from lib_dlhpc.explore.slides.deck import deck


@pytest.fixture(scope="session")
def decks(repository):
    """Decks by module; numbers of one of them take half a minute, and are not what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        _, uncovered = questions.lesson.outcomes["across_nodes"]
        patch.setitem(questions.lesson.outcomes, "across_nodes", (lambda: 2.0, uncovered))
        patch.setattr(questions.lesson, "numbers", dict.fromkeys(questions.lesson.numbers, 0.5))
        return {module.name: deck(module, repository) for module in PATH}
