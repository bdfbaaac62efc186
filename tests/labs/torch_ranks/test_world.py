"""What hangs on ranks of PyTorch is explained from their calls; where PyTorch is missing, a sentence says so."""

import re
import sys
from subprocess import PIPE

import pytest

from lib_dlhpc.labs.mistakes import Mismatch, Unmet
from lib_dlhpc.labs.program import Unusable
from lib_dlhpc.labs.torch_ranks import world
from lib_dlhpc.labs.torch_ranks.world import Calls, World
from lib_dlhpc.lifetime import owned


def is_missing(name):
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("look", [lambda name: None, is_missing])
def test_without_torch_the_command_that_installs_it_is_named(monkeypatch, look):
    monkeypatch.setattr(world, "find_spec", look)
    with pytest.raises(
        Unusable, match=r"torch is not installed; `pip install 'lib-dlhpc\[torch\]'`"
    ):
        World(2)


@pytest.mark.parametrize("number", ["01", "06"])
def test_a_lab_ends_with_a_sentence_where_something_is_missing(repository, number):
    (checks,) = (repository / "labs").glob(f"{number}_*/torch_checks.py")
    run = owned.run(
        [sys.executable, checks, "nothing.py", "x"],
        cwd=checks.parent,
        stdout=PIPE,
        stderr=PIPE,
        text=True,
    )
    assert run.returncode == 2 and "Traceback" not in run.stderr
    assert re.search(r"torch is not installed|nothing.py: there is no such file", run.stderr)


@pytest.mark.parametrize("first", ["returns", "waits"])
def test_a_rank_that_returned_without_a_call_is_named_whoever_was_first(first):
    calls = Calls(3)
    for rank in range(3):
        calls.entered(rank, ("allreduce", 1))
    moves = [lambda: calls.returned(2), lambda: calls.entered(0, ("allreduce", 9))]
    if first == "waits":
        moves.reverse()
    moves[0]()
    with pytest.raises(
        Unmet, match="rank 0 waits in allreduce for rank 2, which returned without it"
    ):
        moves[1]()


@pytest.mark.parametrize("other", [("broadcast", 4), ("allreduce", 5)])
def test_calls_that_differ_are_a_mismatch(other):
    calls = Calls(2)
    calls.entered(0, ("allreduce", 4))
    with pytest.raises(Mismatch, match=rf"Call 1 is {other[0]} of {other[1]} numbers on rank 1"):
        calls.entered(1, other)


def test_ranks_may_be_ahead_of_each_other_as_long_as_none_has_returned():
    calls = Calls(2)
    for size in (1, 2, 3):
        calls.entered(0, ("allreduce", size))
    for size in (1, 2, 3):
        calls.entered(1, ("allreduce", size))
    calls.returned(0)
    calls.last[1] = "computes"
    assert calls.where() == "rank 0 has returned; rank 1 computes"
