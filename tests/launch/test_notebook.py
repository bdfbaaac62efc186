"""A notebook as a job: its parameters, and its outputs up to the failed cell."""

import json
import os

import nbformat
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import eventually

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import JobError, submit_task
from lib_dlhpc.launch.jobs import ENDS
from lib_dlhpc.launch.notebook import notebook, read_notebook, with_parameters
from lib_dlhpc.launch.task import printed

POSIX = pytest.mark.skipif(os.name != "posix", reason="jobs of this machine need POSIX")
HOSTILE = ["; touch x", "$(touch x)", "a\nimport os", "'", '"', "\\", '"""', "{x}"]
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(), inside, max_size=3),
    max_leaves=8,
)


def written(path, *cells, tag="parameters"):
    """A notebook file of these cells, the first of which has the tag."""
    made = [nbformat.v4.new_code_cell(cell) for cell in cells]
    made[0].metadata["tags"] = [tag]
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return path


def outputs(path):
    """What each cell of a notebook has printed."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join("".join(out.get("text", "")) for out in cell["outputs"]) for cell in cells]


def living(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@settings(max_examples=40)
@given(PLAIN)
def test_a_plain_value_is_passed_unchanged(value):
    table = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("a = 1\nb: int = 2")])
    table.cells[0].metadata["tags"] = ["parameters"]
    cells = with_parameters(table, {"a": value, "b": HOSTILE}, "n.ipynb")["cells"]
    scope = {}
    for cell in cells:
        exec("".join(cell["source"]), scope)
    assert scope["a"] == value and scope["b"] == HOSTILE
    assert set(scope) <= {"a", "b", "__builtins__", "__annotations__"}
    given_again = with_parameters({**table, "cells": cells}, {"a": 3}, "n.ipynb")["cells"]
    assert len(given_again) == len(cells) == 2  # the cell that a job added before is replaced


@pytest.mark.parametrize(
    ("cell", "parameters", "message"),
    [
        ("steps = 1", {"step": 2}, "no such parameter. Did you mean 'steps'\\? Legal: steps"),
        ("steps = 1", {"steps; import os": 2}, "no such parameter"),
        ("", {"a": 2}, "legal: none"),
        ("a = = 1", {"a": 2}, "tag 'parameters': invalid syntax, line 1"),
        ("a = 1", {"a": object}, "expected a number, text"),
    ],
)
def test_names_that_it_has_not_and_values_that_are_not_plain(tmp_path, cell, parameters, message):
    path = written(tmp_path / "n.ipynb", cell)
    with pytest.raises(SpecError, match=message):
        notebook(path, parameters)


def test_what_is_no_notebook_is_refused(tmp_path):
    with pytest.raises(SpecError, match="No such file"):
        notebook(tmp_path / "none.ipynb")
    for text in ("", "[]", '{"cells": 3}', '{"cells": [], "nbformat": 3}', "\x00"):
        (tmp_path / "n.ipynb").write_text(text)
        with pytest.raises(SpecError, match="cannot be read as a notebook"):
            read_notebook(tmp_path / "n.ipynb")
    path = written(tmp_path / "n.ipynb", "a = 1", tag="other")
    with pytest.raises(SpecError, match="no cell has the tag 'parameters'"):
        notebook(path, {"a": 2})


@POSIX
def test_a_partial_notebook_is_returned_and_the_failed_cell_is_named(
    tmp_path, own_place, ranks_can_start
):
    path = written(
        tmp_path / "a b.ipynb",
        "word, ranks = '', 1\nranks = 1\nword = ''",
        "print(repr(word))",
        "!mpiexec -n {ranks} python -c 'from mpi4py import MPI; MPI.COMM_WORLD.barrier(); print(7)'",
        "raise ZeroDivisionError('\x1b[31mdivision\x1b[0m by zero')",
        "print('never')",
    )
    source = path.read_bytes()
    word = "'; touch x; $(touch x)\n"
    job = submit_task(notebook(path, {"word": word, "ranks": 2}), folder=tmp_path / "run")
    with pytest.raises(JobError, match=r"^cell 4 of a b.ipynb: ZeroDivisionError: division by"):
        job.wait()
    log = printed(job.folder)
    assert job.state == "failed" and "\x1b" not in log and "raise ZeroDivisionError" in log
    numbered = [line for line in log.splitlines() if line.startswith("cell ")]
    assert numbered == [f"cell {number} of 5" for number in (1, 2, 3, 4)]  # those of `path`
    message = outputs(job.folder / "a b.ipynb")
    assert message[2] == f"{word!r}\n" and message[3].count("7") == 2 and message[5] == ""
    assert path.read_bytes() == source and not list(tmp_path.glob("**/x"))
    with pytest.raises(SpecError, match="holds a run already"):
        submit_task(notebook(path), folder=job.folder)


@POSIX
def test_cancelled_in_a_cell_it_leaves_nothing_of_what_it_started(
    tmp_path, own_place, ranks_can_start
):
    program = tmp_path / "waits.py"
    program.write_text(
        "import os, pathlib, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path(f'pid-{os.getpid()}').touch()\nsignal.pause()\n"
    )
    cells = (
        "import os, pathlib; pathlib.Path(f'pid-{os.getpid()}').touch()",
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, 'waits.py'], start_new_session=True)",
        "!mpiexec -n 2 python waits.py",
    )
    job = submit_task(notebook(written(tmp_path / "n.ipynb", *cells)), folder=tmp_path / "run")
    eventually(lambda: len(list(tmp_path.glob("pid-*"))) == 4 or job.state in ENDS)
    pids = [int(path.name.partition("-")[2]) for path in tmp_path.glob("pid-*")]
    assert len(pids) == 4 and all(map(living, pids)), job.why()
    job.cancel()
    assert job.state == "cancelled"
    eventually(lambda: not any(map(living, pids)))
    assert (job.folder / "n.ipynb").exists()
