"""Labs in a terminal: wrong arguments, or a file with a mistake, give one sentence."""

import os
import subprocess
import sys

import pytest
from patience import PATIENCE

from lib_dlhpc.launch.mpi import command, environment

LABS = (
    "01_data_parallel_step",
    "02_overlap",
    "03_large_batch",
    "04_pipeline",
    "05_split_convolution",
    "06_fit_the_model",
    "07_repair_the_input",
)
WRONG = {
    "nothing": (None, "cannot be read: No such file"),
    "x = 1\n": (1, "does not define step"),
    "x = (\n": (1, "cannot be run: SyntaxError"),
    "\nx = 1 / 0\n": (2, "line 2, in <module>: ZeroDivisionError: division by zero"),
}


def terminal(checks, *words, ranks=0):
    """A lab's checks as a learner starts them: `python checks.py`, or `mpiexec -n RANKS python checks.py`."""
    words = (str(checks), *words)
    return subprocess.run(
        command(ranks, *words) if ranks else [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**environment(ranks), "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.parametrize("lab", LABS)
@pytest.mark.parametrize("words", [(), ("a", "b", "c")])
def test_every_lab_prints_its_usage(repository, lab, words):
    run = terminal(repository / "labs" / lab / "checks.py", *words)
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr.startswith("usage: python checks.py ") and run.stderr.count("\n") == 1


@pytest.mark.parametrize("text", WRONG)
def test_a_file_that_is_no_lab_is_reported_in_a_sentence(repository, tmp_path, text):
    if WRONG[text][0]:
        (tmp_path / "step.py").write_text(text)
    checks = repository / "labs" / "01_data_parallel_step" / "checks.py"
    run = terminal(checks, str(tmp_path / "step.py"), "x")
    assert run.returncode == 2 and WRONG[text][1] in run.stderr
    assert "Traceback" not in run.stderr and run.stderr.count("\n") == 1


def test_an_error_on_all_ranks_is_printed_once(repository, on_ranks, tmp_path):
    checks = repository / "labs" / "05_split_convolution" / "checks.py"
    run = terminal(checks, str(tmp_path / "step.py"), "x", ranks=2)
    assert run.returncode == 2
    assert run.stderr.count("cannot be read") == 1 and "Abort" not in run.stderr


def test_the_starter_of_lab_4_fails_with_a_sentence_on_real_ranks(
    repository, starter, on_ranks, tmp_path
):
    cells = ("def forward(", "def gpipe(", "def step(")
    (tmp_path / "step.py").write_text("\n\n".join(starter("04_pipeline", w) for w in cells))
    checks = repository / "labs" / "04_pipeline" / "checks.py"
    run = terminal(checks, str(tmp_path / "step.py"), "x", ranks=4)
    assert run.returncode and "the activation of microbatch" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_mistake_of_a_rank_is_reported_with_its_line(repository, on_ranks, tmp_path):
    text = (
        "from mpi4py import MPI\n\n\ndef step(network, loss, x, y, comm, rate):\n"
        "    return [][comm.rank] if isinstance(comm, MPI.Comm) else 0.0\n"
    )
    (tmp_path / "step.py").write_text(text)
    checks = repository / "labs" / "01_data_parallel_step" / "checks.py"
    run = terminal(checks, str(tmp_path / "step.py"), "x", ranks=2)
    assert run.returncode == 1 and "step.py, line 5, in step: IndexError" in run.stderr
    assert "Traceback" not in run.stderr


def test_ranks_that_would_wait_forever_are_not_started(repository, on_ranks, tmp_path):
    text = (
        "def step(network, loss, x, y, comm, rate):\n"
        "    return comm.allreduce(0.0) if comm.rank else 0.0\n"
    )
    (tmp_path / "step.py").write_text(text)
    checks = repository / "labs" / "01_data_parallel_step" / "checks.py"
    run = terminal(checks, str(tmp_path / "step.py"), "x", ranks=2)
    assert run.returncode == 2 and run.stderr.count("MPI would hang here") == 1
