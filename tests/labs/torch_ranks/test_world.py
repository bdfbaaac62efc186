"""What hangs on ranks of PyTorch is explained from their calls; where PyTorch is missing, a sentence says so."""

import pytest

from lib_dlhpc.labs.mistakes import Mismatch, Unmet
from lib_dlhpc.labs.program import Unusable
from lib_dlhpc.labs.torch_ranks import world
from lib_dlhpc.labs.torch_ranks.world import Calls, World


def test_without_torch_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setattr(world, "find_spec", lambda name: None)
    with pytest.raises(
        Unusable, match=r"torch is not installed; `pip install 'lib-dlhpc\[torch\]'`"
    ):
        World(2)


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
