"""Workers take files that do not wait for each other; all files are run, each by one worker."""

import os
import re
import subprocess
import sys

import pytest
from order import next_file

MPI, PAGE, LAB, QUIET = (
    f"tests/{folder}/test_x.py" for folder in ("mpi", "browser", "labs", "spec")
)
NOTEBOOK = "modules/01_one_step.ipynb"
ALL = [NOTEBOOK, QUIET, LAB, PAGE, MPI]


@pytest.mark.parametrize(
    ("waiting", "elsewhere", "taken"),
    [
        (ALL, [], MPI),
        (ALL, [QUIET], MPI),
        (ALL, [MPI], QUIET),
        (ALL, [MPI, QUIET], QUIET),
        (ALL, [PAGE], PAGE),
        ([PAGE, MPI, LAB, NOTEBOOK], [MPI], LAB),
        ([PAGE, MPI, NOTEBOOK], [MPI], NOTEBOOK),
        ([MPI, LAB], [PAGE], LAB),
        ([MPI, PAGE], [MPI], MPI),
        ([NOTEBOOK, QUIET, LAB], [PAGE], LAB),
        ([NOTEBOOK, QUIET], [], QUIET),
        (["tests/test_cli.py", QUIET], [MPI], "tests/test_cli.py"),
    ],
)
def test_a_worker_takes_what_goes_beside_what_others_are_at(waiting, elsewhere, taken):
    assert next_file(waiting, elsewhere) == taken


def test_two_workers_run_all_files_and_those_on_ranks_one_by_one(tmp_path, repository):
    conftest = "from order import pytest_xdist_make_scheduler"
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    files = [f"tests/{folder}/test_{name}.py" for folder in ("mpi", "spec") for name in "ab"]
    for file in files:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def test_1(): pass\ndef test_2(): pass\ndef test_3(): pass\n")
    words = ["-v", "-n", "2", "--dist", "loadfile", "--import-mode=importlib", "-p", "xdist"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-o", f"pythonpath={repository / 'tests/helpers'}"],
        cwd=tmp_path, env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    ran = re.findall(r"\[(gw\d)\].* PASSED (\S+\.py)::", run.stdout)
    assert sorted(file for _, file in ran) == sorted(3 * files), run.stdout + run.stderr
    assert len(set(ran)) == len(files), "a file is of one worker"
    of = {file: worker for worker, file in ran}
    assert of["tests/mpi/test_a.py"] != of["tests/spec/test_a.py"], "both workers begin"
