"""Chunks over a real Dask cluster of this machine: the result of one process; a killed worker's chunk is done again."""

import pytest
from distributed import LocalCluster

from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner import candidates, plan
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.scale_out import Work, dask_cluster, place, results, sweep
from lib_dlhpc.scale_out.seeds import simulate_seeds
from lib_dlhpc.spec.experiment import Experiment

AXES = {
    "strategy.nodes": range(1, 47),  # of 44
    "strategy.allreduce": ["ring", "hierarchical"],
    "strategy.batch": range(16, 65, 16),
}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as here:
        yield place(f"dask:{here.scheduler_address}")


@pytest.fixture(scope="module")
def goyal():
    return replay("goyal-2017").experiment


def test_a_sweep_has_the_best_and_the_rows_of_one_process(cluster, goyal, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "SIZE", 50)
    one, two = tmp_path / "one", tmp_path / "two"
    here = sweep.sweep_points(goyal, AXES, rows=one)
    there = sweep.sweep_points(goyal, AXES, where=cluster, rows=two)
    assert (there.best, there.ranges, there.fitting) == (here.best, here.ranges, here.fitting)
    assert there.illegal == here.illegal and sum(here.illegal.values()) == 16
    files = sorted(path.name for path in one.iterdir())
    assert len(files) == 8
    for name in files:
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_rows_in_parquet_have_the_numbers_of_csv(goyal, tmp_path, monkeypatch):
    from pyarrow import csv, parquet

    monkeypatch.setattr(sweep, "SIZE", 200)
    legal = AXES | {"strategy.nodes": range(1, 45)}  # Arrow's reader of CSV takes nan for no value
    for format in ("csv", "parquet"):
        sweep.sweep_points(goyal, legal, rows=tmp_path / format, format=format)
    for part in ("part-000000", "part-000001"):
        held = parquet.read_table(tmp_path / "parquet" / f"{part}.parquet")
        text = csv.read_csv(tmp_path / "csv" / f"{part}.csv")
        assert held.column_names == text.column_names
        for name in ("strategy.batch", "strategy.allreduce", "step_time", "fits"):
            values = [str(value) for value in held[name].to_pylist()]
            assert [str(type(held[name][0].as_py())(v)) for v in text[name].to_pylist()] == values


def test_a_plan_and_many_seeds_have_the_result_of_one_process(cluster, goyal, monkeypatch):
    monkeypatch.setattr(candidates, "SIZE", 97)
    model = {
        "family": "gpt",
        "layers": 2,
        "hidden": 16,
        "heads": 2,
        "sequence": 8,
        "vocabulary": 16,
    }
    run = Experiment(model=model, machine="laptop", strategy={"devices_per_node": 4, "batch": 4})
    choose = {"recompute": ["none"], "microbatches": [1, 2, 4]}
    one, two = plan(run, choose=choose), plan(run, choose=choose, where=cluster)
    assert two.to_columns() == one.to_columns() and two.left_out == one.left_out
    assert simulate_seeds(goyal, 20, where=cluster).columns == simulate_seeds(goyal, 20).columns


def test_the_chunk_of_a_killed_worker_is_done_again(tmp_path):
    work = Work("lost_chunk:chunk", {"once": str(tmp_path / "once")}, 5)
    found = list(results(work, place("dask:1")))
    assert [int(each["square"]) for each in found] == [0, 1, 4, 9, 16]


def test_an_error_of_a_chunk_is_that_of_one_process(cluster):
    arguments = {"experiment": "[strategy]", "axes": {"strategy.nodes": [1]}, "size": 1}
    with pytest.raises(SpecError, match=r"\[model\] is missing"):
        list(results(Work("lib_dlhpc.scale_out.sweep:chunk", arguments, 1), cluster))


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(dask_cluster, "SECONDS", 1)
    with pytest.raises(SpecError, match="no scheduler answers"):
        list(results(Work("a:b", {}, 1), place("dask:tcp://127.0.0.1:1")))
