"""Chunks as a job array of a real Slurm: the result of one process; what a killed task leaves is done again."""

import os
from pathlib import Path

import lost_chunk
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import Site
from lib_dlhpc.launch.systems import system
from lib_dlhpc.planner import candidates, plan
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.scale_out import LostError, Work, place, results, sweep
from lib_dlhpc.spec.experiment import Experiment

AXES = {
    "strategy.nodes": range(1, 47),  # of 44
    "strategy.allreduce": ["ring", "hierarchical"],
    "strategy.batch": range(16, 65, 16),
}

pytestmark = pytest.mark.usefixtures("slurm", "own_state")


@pytest.fixture
def array(tmp_path):
    """Two tasks."""
    return place("slurm", tmp_path / "work", site=Site(name="here"), tasks=2)


def test_a_sweep_as_a_job_array_has_the_best_and_the_rows_of_one_process(
    tmp_path, monkeypatch, array
):
    monkeypatch.setattr(sweep, "SIZE", 100)
    goyal, one, two = replay("goyal-2017").experiment, tmp_path / "one", tmp_path / "two"
    here = sweep.sweep_points(goyal, AXES, rows=one)
    there = sweep.sweep_points(goyal, AXES, where=array, rows=two)
    assert (there.best, there.ranges, there.fitting) == (here.best, here.ranges, here.fitting)
    assert there.illegal == here.illegal and sum(here.illegal.values()) == 16
    files = sorted(path.name for path in one.iterdir())
    assert len(files) == 4 and files == sorted(path.name for path in two.iterdir())
    for name in files:
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert not (tmp_path / "work").exists()


def test_a_plan_as_a_job_array_is_the_plan_of_one_process(tmp_path, monkeypatch, array):
    """Of two batches, whose chunks are one array."""
    monkeypatch.setattr(candidates, "SIZE", 97)
    run = Experiment(
        model="resnet50",
        machine="summit",
        strategy={"nodes": 32, "devices_per_node": 4, "batch": 64},
        run={"target": 0.76},
        plan={"batch": [256, 8192]},
    )
    choose = {"pipeline": [1, 2], "spatial": [1], "microbatches": [1], "recompute": ["none"]}
    here, there = plan(run, choose=choose), plan(run, choose=choose, where=array)
    assert there.to_columns() == here.to_columns() and there.certificate == here.certificate
    assert (there.legal, there.predicted, there.pruned) == (here.legal, here.predicted, here.pruned)
    assert there.left_out == here.left_out
    assert not (tmp_path / "work").exists()


def test_a_killed_task_is_reported_and_its_chunks_are_done_by_the_next_call(
    tmp_path, monkeypatch, array
):
    paths = [str(Path(lost_chunk.__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    work = Work("lost_chunk:chunk", {"once": str(tmp_path / "once")}, 5)
    with pytest.raises(LostError, match="1 of 2 jobs failed"):
        list(results(work, array))
    held = sorted(path.name for path in (tmp_path / "work").glob("chunk*"))
    assert held == [f"chunk-00000{number}.npz" for number in (0, 1, 3)]
    assert [int(each["square"]) for each in results(work, array)] == [0, 1, 4, 9, 16]


def test_more_tasks_than_an_array_may_have_are_refused_before_anything_is_submitted(tmp_path):
    most = system("slurm").most_tasks()
    assert most == 1001  # Slurm's default
    where = place("slurm", tmp_path / "work", site=Site(name="here"), tasks=most + 1)
    with pytest.raises(SpecError, match=r"an array of 1,002 tasks; at most 1,001 .* --tasks"):
        list(results(Work("lost_chunk:chunk", {}, 5000), where))
    assert not list((tmp_path / "work").glob("jobs-*/*"))
