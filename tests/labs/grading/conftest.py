"""Learners' functions in processes of their own."""

from contextlib import ExitStack
from tempfile import TemporaryFile

import pytest
from patience import PATIENCE

from lib_dlhpc.labs.grading.hand_in import HandIn
from lib_dlhpc.labs.grading.labs import COMPUTES, LABS
from lib_dlhpc.labs.grading.workers import server


@pytest.fixture(scope="module")
def remote():
    """A function: those of a lab in a source, each in a process."""
    with ExitStack() as stack:
        legal = {each for lab in LABS.values() for each in (*COMPUTES, *lab.imports)}
        own = stack.enter_context(server(sorted(legal), int(PATIENCE), files=True))

        def functions(source, names, streams=()):
            output = stack.enter_context(TemporaryFile())
            hand_in = HandIn(own, "step.py", source, PATIENCE, output)
            stack.callback(hand_in.close)
            return hand_in.functions(names, streams)

        yield functions
