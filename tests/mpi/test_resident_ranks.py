"""Ranks that stay: a check that fails, ends or hangs fails alone, and says why; the next one finds new ranks."""

import pytest
import resident_ranks
from patience import PATIENCE
from resident_ranks import Resident

PROGRAM = """
import os, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank == 1:
    print("before")
    {what}
comm.Barrier()
print(f"rank {{comm.rank}} of {{comm.size}}", *sys.argv[1:])
"""


@pytest.fixture
def ranks(mpiexec):
    ranks = Resident(mpiexec, PATIENCE, 3)
    yield ranks
    ranks.close()


def test_a_check_that_fails_fails_alone(ranks, tmp_path):
    program = tmp_path / "check.py"

    def run(what, size):
        program.write_text(PROGRAM.format(what=what))
        return ranks.run(size, program, "so", "far")

    assert run("pass", 2) == "rank 0 of 2 so far\nbefore\nrank 1 of 2 so far\n"
    for what, why in {
        "raise KeyError('a mistake')": r"rank 1\nbefore\n(?s:.*)KeyError: 'a mistake'",
        "os._exit(0)": "rank 1\nIt ended",
    }.items():
        with pytest.raises(AssertionError, match=why):
            run(what, 3)
        assert run("pass", 3).splitlines()[-1] == "rank 2 of 3 so far"
    ranks.patience = 0.5
    with pytest.raises(AssertionError, match="3 of 3 ranks do not end"):
        run("comm.recv()", 3)


def test_one_that_ends_is_named_with_those_that_mpiexec_ends(ranks, tmp_path, monkeypatch):
    program, wait = tmp_path / "check.py", resident_ranks.wait
    program.write_text(PROGRAM.format(what="os._exit(0)"))

    def late(*given):
        ranks._process.wait(PATIENCE)
        return wait(*given)

    monkeypatch.setattr(resident_ranks, "wait", late)
    with pytest.raises(AssertionError, match="rank 1\nIt ended"):
        ranks.run(3, program)
