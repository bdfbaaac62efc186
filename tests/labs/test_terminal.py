"""Labs in a terminal: wrong arguments, or a file with a mistake, give one sentence."""

import json
import os
import subprocess
import sys

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


# What one process runs one after the other, each as a program of its own; a start of each takes most of a second.
SEVERAL = """
import json, runpy, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

said = []
for sys.argv in json.loads(sys.argv[1]):
    code = 0
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code
    said.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(said))
"""


def terminals(*runs):
    """Return the exit status, output and errors of each program, a file and its arguments."""
    one = terminal("-c", SEVERAL, json.dumps(runs))
    assert one.returncode == 0, one.stderr
    return json.loads(one.stdout)


def test_every_lab_prints_its_usage(repository):
    checks = [str(repository / "labs" / lab / "checks.py") for lab in LABS]
    runs = [(each, *words) for each in checks for words in ((), ("a", "b", "c"))]
    for run, (status, output, errors) in zip(runs, terminals(*runs), strict=True):
        assert status == 2 and output == "", run
        assert errors.startswith("usage: python checks.py ") and errors.count("\n") == 1, run


def test_a_file_that_is_no_lab_is_reported_in_a_sentence(repository, tmp_path):
    checks, runs = repository / "labs" / "01_data_parallel_step" / "checks.py", []
    for number, (text, (there, _)) in enumerate(WRONG.items()):
        file = tmp_path / str(number) / "step.py"
        file.parent.mkdir()
        if there:
            file.write_text(text)
        runs.append((str(checks), str(file), "x"))
    for (_, words), (status, _, errors) in zip(WRONG.values(), terminals(*runs), strict=True):
        assert status == 2 and words in errors
        assert "Traceback" not in errors and errors.count("\n") == 1, errors


def test_a_lab_ends_its_process_with_that_status(repository):
    run = terminal(repository / "labs" / LABS[0] / "checks.py")
    assert run.returncode == 2 and run.stderr.startswith("usage: python checks.py ")


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
