"""A grid cut into chunks: the same numbers as point by point, wherever chunks are done; rows whole or absent."""

import csv
import json
from collections import Counter

import numpy as np
import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.errors import FieldError, SpecError
from lib_dlhpc.prediction import predict, what_if
from lib_dlhpc.prediction.sweeps import grid
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.scale_out import LostError, place, rows, sweep, work
from lib_dlhpc.spec.experiment import Experiment

AXES = {
    "strategy.nodes": range(1, 45),
    "strategy.allreduce": ["ring", "hierarchical"],
    "strategy.batch": range(16, 65, 16),
}
POINTS = 44 * 2 * 4


@pytest.fixture(scope="module")
def goyal():
    return replay("goyal-2017").experiment


@pytest.fixture
def small(monkeypatch):
    """Chunks of 50 points."""
    monkeypatch.setattr(sweep, "SIZE", 50)


def test_any_piece_of_a_grid_has_the_numbers_of_each_point(goyal):
    found = grid.predict_points(goyal, AXES, 3, 300)
    at = grid.values_at(AXES, np.arange(3, 300))
    for row in (0, 5, 124, 296):
        one = predict(what_if(goyal, {name: each[row].item() for name, each in at.items()}))
        for name in (*grid.QUANTITIES, "fits"):
            assert found[name][row] == getattr(one, name)


def test_points_are_numbered_with_the_last_axis_fastest():
    at = grid.values_at({"a": range(10, 30, 10), "b": ["x", "y"]}, np.arange(4))
    assert at["a"].tolist() == [10, 10, 20, 20] and at["b"].tolist() == ["x", "y", "x", "y"]


def test_a_grid_of_many_points_is_no_list(goyal):
    axes = {"strategy.batch": range(1, 10**6), "strategy.nodes": range(1, 10**6)}
    assert grid.count(axes) > 10**11
    last = grid.values_at(axes, np.array([grid.count(axes) - 1]))
    assert [each.item() for each in last.values()] == [10**6 - 1, 10**6 - 1]
    with pytest.raises(SpecError, match="legal: up to"):
        grid.count(axes | {"run.epochs": range(1, 10**6)})


@pytest.mark.parametrize("by", ["throughput", "energy_to_train"])
def test_the_best_of_chunks_are_those_of_the_whole(goyal, monkeypatch, by):
    whole = sweep.sweep_points(goyal, AXES, by, best=60)
    monkeypatch.setattr(sweep, "SIZE", 7)
    cut = sweep.sweep_points(goyal, AXES, by, best=60)
    assert (cut.best, cut.ranges, cut.points) == (whole.best, whole.ranges, POINTS)
    sign = -1 if by == "throughput" else 1
    everything = grid.predict_points(goyal, AXES, 0, POINTS)[by]
    assert cut.best[by] == (sign * np.sort(sign * everything)[:60]).tolist()


ILLEGAL = {  # of a GPT: each breaks some rules at some points
    "closed form": {
        "strategy.nodes": range(40, 50),
        "strategy.devices_per_node": [0, 2, 9],
        "strategy.allreduce": ["ring", "nvls"],
        "strategy.power_limit": [0, 20, 400],
    },
    "split": {
        "strategy.schedule": ["1f1b", "interleaved"],
        "strategy.chunks": [1, 2],
        "strategy.tensor": [1, 2, 3],
        "strategy.pipeline": [1, 2],
        "strategy.microbatches": [1, 2, 3, 8],
    },
}


@pytest.fixture(scope="module")
def gpt():
    model = {"family": "gpt", "layers": 4, "hidden": 16, "heads": 2, "sequence": 8}
    return Experiment(model=model | {"vocabulary": 16}, machine="bigbasin", strategy={"batch": 4})


@pytest.mark.parametrize("kind", ILLEGAL)
def test_illegal_points_are_counted_by_what_is_said_of_each_alone(gpt, monkeypatch, kind):
    axes = ILLEGAL[kind]
    total = grid.count(axes)
    alone, legal = Counter(), []
    at = grid.values_at(axes, np.arange(total))
    for number in range(total):
        try:
            changes = {name: each[number].item() for name, each in at.items()}
            legal.append(predict(what_if(gpt, changes)).step_time)
        except SpecError as error:
            alone[grid.rule(error)] += 1
    assert len(alone) > 2 and len(legal) > 2
    for size in (total, 17):
        monkeypatch.setattr(sweep, "SIZE", size)
        found = sweep.sweep_points(gpt, axes, "step_time", best=total)
        assert Counter({grid.rule(said): n for said, n in found.illegal.items()}) == alone
        assert found.points == total and found.best["step_time"] == sorted(legal)
    refused = {}
    whole = grid.predict_points(gpt, axes, 0, total, refused)
    assert whole["legal"].sum() == len(legal) and np.isnan(whole["step_time"]).sum() == sum(
        many for many, _ in refused.values()
    )
    assert whole["step_time"][whole["legal"]].tolist() == legal


def test_places_count_the_same_illegal_points(goyal, monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "SIZE", 50)
    axes = AXES | {"strategy.nodes": range(30, 90)}
    here = sweep.sweep_points(goyal, axes, rows=tmp_path / "one")
    there = sweep.sweep_points(goyal, axes, where=place("processes:2"), rows=tmp_path / "two")
    said = "strategy.nodes = 45: bigbasin has 44; use fewer, or raise machine.nodes."
    assert here.illegal == there.illegal == {said: 45 * 8}
    assert here.best == there.best and f"360 such as {said}" in here.summary().facts["not legal"]
    last = (tmp_path / "one" / "part-000009.csv").read_text()
    assert last == (tmp_path / "two" / "part-000009.csv").read_text()
    assert last.splitlines()[-1].startswith("89,hierarchical,64,nan,")


def test_what_no_other_axis_makes_legal_is_refused_before_the_first_point(goyal):
    for axes in (
        {"strategy.node": [1]},
        {"strategy.nodes": range(9)},
        {"strategy.nodes": [1], "strategy.allreduce": ["ring", "rign"]},
        {"machine.name": ["bigbasin", "bigbasn"]},
    ):
        with pytest.raises(FieldError, match=r"(legal|Legal): "):
            sweep.sweep_points(goyal, axes)


def test_points_that_do_not_fit_are_no_best(goyal):
    axes = {"strategy.batch": [32, 4096]}
    found = sweep.sweep_points(goyal, axes)
    assert (found.points, found.fitting, found.best["strategy.batch"]) == (2, 1, [32])
    with pytest.raises(SpecError, match=r"the smallest needs [\d.]+ GB per device\. Try smaller"):
        sweep.sweep_points(goyal, {"strategy.batch": [4096]})
    with pytest.raises(SpecError, match=r"^2 of 2 points are not legal: "):
        sweep.sweep_points(goyal, {"strategy.nodes": [60, 70]})


def test_processes_have_the_result_of_one_and_so_have_jobs(goyal, tmp_path, monkeypatch, own_state):
    monkeypatch.setattr(sweep, "SIZE", 200)
    out = {on: tmp_path / on for on in ("here", "processes", "local")}
    here = sweep.sweep_points(goyal, AXES, rows=out["here"])
    two = sweep.sweep_points(goyal, AXES, where=place("processes:2"), rows=out["processes"])
    where = place("local", tmp_path / "work", tasks=2)
    jobs = sweep.sweep_points(goyal, AXES, where=where, rows=out["local"])
    assert here.best == two.best == jobs.best and here.ranges == two.ranges == jobs.ranges
    files = sorted(path.name for path in out["here"].iterdir())
    assert files == ["part-000000.csv", "part-000001.csv"]
    for name in files:
        assert len({(folder / name).read_bytes() for folder in out.values()}) == 1
    assert {each.name for each in tmp_path.iterdir()} == {*out, "state"}


def test_rows_are_read_back_to_the_bit(goyal, tmp_path, small):
    sweep.sweep_points(goyal, AXES, rows=tmp_path / "rows")
    read = []
    for path in sorted((tmp_path / "rows").iterdir()):
        with open(path, newline="") as file:
            read += list(csv.DictReader(file))
    found = grid.predict_points(goyal, AXES, 0, POINTS)
    assert [float(row["step_time"]) for row in read] == found["step_time"].tolist()
    assert [row["strategy.nodes"] for row in read] == [
        str(n) for n in AXES["strategy.nodes"] for _ in range(8)
    ]


def test_after_a_failure_no_rows_are_there_and_only_missing_chunks_are_done(
    goyal, tmp_path, small, monkeypatch
):
    done, out = [], tmp_path / "rows"
    predicted = sweep.predict_points

    def failing(experiment, axes, start, stop, refused):
        if start == 100 and 100 not in done:
            done.append(100)
            raise LostError("a node is lost")
        done.append(start)
        return predicted(experiment, axes, start, stop, refused)

    monkeypatch.setattr(sweep, "predict_points", failing)
    where = place("here", tmp_path / "work")
    with pytest.raises(LostError):
        sweep.sweep_points(goyal, AXES, where=where, rows=out)
    assert not out.exists()
    with pytest.raises(SpecError, match="other work"):
        sweep.sweep_points(goyal, AXES, "step_time", where=where, rows=out)
    again = sweep.sweep_points(goyal, AXES, where=where, rows=out)
    assert done == [0, 50, 100, 100, 150, 200, 250, 300, 350]
    monkeypatch.undo()
    assert again.best == sweep.sweep_points(goyal, AXES).best
    assert [each.name for each in tmp_path.iterdir()] == ["rows"]


def test_without_a_folder_for_work_a_failure_leaves_nothing(goyal, tmp_path):
    with pytest.raises(SpecError):
        sweep.sweep_points(goyal, {"strategy.batch": [0]}, rows=tmp_path / "rows")
    assert not list(tmp_path.iterdir())


def test_rows_in_parquet_need_its_package(goyal, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"pyarrow is not installed.*lib-dlhpc\[scale\]"):
        sweep.sweep_points(goyal, AXES, rows=tmp_path / "rows", format="parquet")
    assert not list(tmp_path.iterdir())


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SpecError, match="not empty"):
        work.open_folder(tmp_path, work.Work("a:b", {}, 1))


@pytest.mark.parametrize(
    ("on", "legal"),
    [
        ("moon", "here, processes, dask, flux, lsf, pbs, slurm, local; "),
        ("here:2", "processes:2"),
        ("processes:none", "at least 1"),
        ("slurm", "--work FOLDER"),
    ],
)
def test_an_illegal_place_names_the_legal_ones(on, legal):
    with pytest.raises(SpecError, match=legal):
        place(on)


def test_the_command(tmp_path, capsys):
    over = ("--over", "strategy.nodes=1-44:43", "strategy.allreduce=ring,hierarchical")
    out = tmp_path / "rows"
    assert main(["sweep", "goyal-2017", *over, "--best", "1", "--rows", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["points"], len(found["best"])) == (4, 1)
    assert found["best"][0]["strategy.nodes"] == 44
    assert len((out / "part-000000.csv").read_text().splitlines()) == 5
    assert main(["sweep", "goyal-2017", *over, "--by", "time_to_train"]) == 0
    assert "strategy.allreduce" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "legal"),
    [
        (("--over", "strategy.nodes=5-1"), "LAST not below FIRST"),
        (("--over", "strategy.nodes=1-5:0"), "STEP 1 or more"),
        (("--over", "strategy.nodes"), "--over strategy.nodes: expected KEY=VALUE"),
        (("--over", "strategy.nodes=1", "strategy.nodes=2"), "--over strategy.nodes: given twice"),
        (("--over", "strategy.nodes=1-2", "--by", "speed"), "step_time"),
        (("--over", "strategy.nodes=1-2", "--best", "0"), "1 and more"),
        (("--over", "strategy.nodes=1-2", "--format", "xml"), "csv, parquet"),
        (("--over", "strategy.nodes=1-2", "--tasks", "3"), "batch system"),
        (("--over", "strategy.nodes=1-2", "--rows", "."), "exists already"),
        (("--over", "strategy.nodes=1-2", "--rows", "no/such/rows"), "no such folder: no/such;"),
    ],
)
def test_a_wrong_option_names_what_is_legal(words, legal, capsys):
    assert main(["sweep", "goyal-2017", *words]) == 2
    assert legal in capsys.readouterr().err
