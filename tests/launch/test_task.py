"""A program as a job: its words arrive as they were typed, on every rank; a rank that raises is named."""

import os
import stat

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.launch import JobError, attach, submit_task
from lib_dlhpc.launch.task import TASK, printed, program

WORDS = ["; touch x", "$(touch x)", "a\nb", "'", '"', "`touch x`", "--set", ""]
PROGRAM = """
import sys
from mpi4py import MPI
import beside
comm = MPI.COMM_WORLD
message = comm.gather(f"rank {comm.rank} of {comm.size}: {sys.argv[1:]}")
if comm.rank == 0:
    print(*message, __name__, open("given.txt").read(), sep="\\n")
"""
FAILS = """
import sys
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    raise ValueError("a cosmic ray")
MPI.COMM_WORLD.recv(source=1)
"""

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="jobs of this machine need POSIX"),
    pytest.mark.usefixtures("own_place", "ranks_can_start"),
]


def test_words_arrive_as_they_were_typed_on_every_rank(tmp_path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs/all.py").write_text(PROGRAM)
    (tmp_path / "programs/beside.py").touch()
    (tmp_path / "given.txt").write_text("in the folder that submits")
    task = program("programs/all.py", *WORDS)
    job = submit_task(task, 2, folder=tmp_path / "run")
    job.wait()
    lines = [*(f"rank {rank} of 2: {WORDS!r}" for rank in range(2)), "__main__"]
    assert printed(job.folder).splitlines() == [*lines, "in the folder that submits"]
    assert not list(tmp_path.glob("**/x"))
    script = (job.folder / "job/start.sh").read_text()
    assert "touch" not in script and "all.py" not in script
    assert stat.S_IMODE((job.folder / TASK).stat().st_mode) == 0o600
    assert attach(job.folder).state == "done"


def test_a_rank_that_raises_is_named_and_ends_those_that_wait(tmp_path):
    (tmp_path / "fails.py").write_text(FAILS)
    job = submit_task(program("fails.py"), 2, folder=tmp_path / "run")
    with pytest.raises(JobError, match=r"^rank 1: ValueError: a cosmic ray$"):
        job.wait()
    assert job.state == "failed" and 'raise ValueError("a cosmic ray")' in printed(job.folder)


def test_the_command_prints_what_is_printed_and_its_status_reports_how_it_went(tmp_path, capsys):
    (tmp_path / "one.py").write_text(
        "import sys\nprint('word', sys.argv[1])\nsys.exit(sys.argv[1])"
    )
    line = ["submit", "one.py", "no good", "--to", "local", "--out", "run", "--wait"]
    assert main(line) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == ["word no good", "no good"]
    assert "ended with status 1: no good" in err and "Traceback" not in err
    assert main(["jobs", "why", "run"]) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["none.py"], "no such program"),
        (["one.py", "--set", "a=1"], "--set is for a notebook"),
        (["one.py", "--resume", "run"], "--resume is for an experiment"),
        (["one.py", "--sweep", "a=1,2"], "--sweep is for an experiment"),
        (["one.py", "-n", "0"], "at least 1"),
        (["one.py", "-n", "100000"], "legal on this machine"),
        (["one.py", "--out", "held"], "holds a run already"),
        (["one.ipynb", "word"], "takes --set NAME=VALUE"),
        (["one.toml", "word"], "only a program"),
    ],
)
def test_errors_are_reported_before_anything_is_there(tmp_path, capsys, line, message):
    (tmp_path / "one.py").touch()
    (tmp_path / "held").mkdir()
    (tmp_path / "held/experiment.toml").touch()
    assert main(["submit", *line]) == 2
    assert message in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"one.py", "held"}
    assert [path.name for path in (tmp_path / "held").iterdir()] == ["experiment.toml"]
