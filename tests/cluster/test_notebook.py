"""Notebooks and a real Slurm: from a cell to the chart, again after a restart; a notebook that is itself a job."""

import json
import subprocess

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.launch import attach

PATIENCE = 180  # s; all of it is taken on a very busy machine only

pytestmark = pytest.mark.usefixtures("slurm", "own_state")


def executed(cells, folder):
    """A notebook of these cells, run by a kernel of its own in a folder."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3", resources=where).execute()
    return notebook


def text_of(cell):
    """The text of a cell's result."""
    return next(out["data"]["text/plain"] for out in cell["outputs"] if "data" in out)


def jobs():
    asked = ["squeue", "-h", "-t", "all", "-o", "%i"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=PATIENCE)
    return set(done.stdout.split())


CELL = """
from lib_dlhpc.explore.submit.page import submitted
from lib_dlhpc.launch import Site
from lib_dlhpc.spec.experiment import loads
experiment = loads('''
[model]
name = "mlp-digits"
[dataset]
name = "digits"
[machine]
name = "laptop"
[strategy]
devices_per_node = 4
batch = 25
[run]
epochs = 2
''')
run = submitted(experiment, ranks=4, to="slurm", site=Site(ranks_per_node=2))
run
"""


def test_from_the_cell_to_the_chart_and_again_after_a_restart(tmp_path):
    before = jobs()
    notebook = executed([CELL, "run.wait().step['measured']"], tmp_path)
    assert float(text_of(notebook.cells[1])) > 0
    (folder,) = tmp_path.glob("dlhpc-*")
    job = attach(folder)
    assert job.state == "done" and jobs() - before == {job.native_id}
    state = json.dumps(notebook.metadata["widgets"])
    for row in ("predicted", "simulated (rounds)", "simulated (events)", "measured here"):
        assert f'"{row}"' in state, row  # a row of the chart
    assert "test accuracy" in state and "2 nodes were asked for" in state

    again = executed([CELL, "run.job.native_id, run.wait().step['measured']"], tmp_path)
    assert text_of(again.cells[1]) == f"('{job.native_id}', {text_of(notebook.cells[1])})"
    assert jobs() - before == {job.native_id}


RANK = """
import os
from mpi4py import MPI
nodes = MPI.COMM_WORLD.gather(os.environ["SLURM_NODEID"])
if MPI.COMM_WORLD.rank == 0:
    print("ranks on nodes", sorted(nodes))
"""


def test_a_notebook_is_a_job_and_its_cells_have_the_ranks(tmp_path, monkeypatch, capsys):
    import nbformat

    monkeypatch.chdir(tmp_path)
    (tmp_path / "rank.py").write_text(RANK)
    (tmp_path / "site.toml").write_text("ranks_per_node = 1\n")
    cells = [
        nbformat.v4.new_code_cell(cell)
        for cell in ("ranks = 1", "!mpiexec -n {ranks} python rank.py")
    ]
    cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), "two.ipynb")
    line = ["submit", "two.ipynb", "--to", "slurm", "--site", "site.toml", "-n", "2"]
    assert main([*line, "--out", "run", "--wait", "--set", "ranks=2"]) == 0
    assert "cell 2 of 2" in capsys.readouterr().out
    last = json.loads((tmp_path / "run/two.ipynb").read_text())["cells"][-1]["outputs"]
    output = "".join("".join(out.get("text", "")) for out in last)
    assert "ranks on nodes ['0', '1']" in output, last
