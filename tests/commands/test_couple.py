"""`dlhpc couple` compares three engines, reports wait states, and runs the better placement."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_workflow import TEXT

from lib_dlhpc.cli import main
from lib_dlhpc.launch import coupled

pytestmark = pytest.mark.usefixtures("ranks_can_start")


@pytest.fixture
def file(tmp_path) -> Path:
    """A workflow whose simulation is costly, on separate ranks."""
    path = tmp_path / "workflow.toml"
    path.write_text(TEXT.replace('point = "10 ns"', 'point = "10 us"'), encoding="utf-8")
    return path


def test_three_engines_who_waits_and_the_better_placement(file, capsys, tmp_path):
    assert main(["couple", str(file), "-n", "2", "--out", str(tmp_path / "kept")]) == 0
    text = capsys.readouterr().out
    for word in ("predicted", "simulated", "measured", "simulate", "train", "exchange", "the run"):
        assert word in text
    assert "separate: 1 + 1" in text
    assert "as described" in text
    assert "shared: 2 do both" in text
    assert "Before" in text
    assert "Training is unchanged" in text
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["after", "before"]


def test_json_has_the_same_terms_of_all_three(file, capsys):
    assert main(["couple", str(file), "-n", "2", "--once", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["after"] is None
    terms = output["before"]["terms"]
    assert {"simulate", "train", "exchange", "wait for samples", "wait for room"} <= set(terms)
    for engines in terms.values():
        assert set(engines) == {"predicted", "simulated", "measured"}
    assert output["placements"][0]["seconds"] <= output["before"]["predicted"]["seconds"]
    assert output["before"]["costs"]["point"] == pytest.approx(1e-5)


@pytest.mark.parametrize(
    ("who", "named"), [("shared", "shared: 2 do both"), ("1", "separate: 1 + 1")]
)
def test_another_placement_can_be_requested(file, capsys, who, named):
    assert main(["couple", str(file), "-n", "2", "--once", "--placement", who]) == 0
    text = capsys.readouterr().out
    assert named in text.split("predicted   simulated")[0]


def test_more_ranks_than_cores_are_reported(file, capsys, monkeypatch):
    read = coupled._read

    def few_cores(folder):
        return replace(read(folder), cores=1)

    monkeypatch.setattr(coupled, "_read", few_cores)
    assert main(["couple", str(file), "-n", "2", "--once"]) == 0
    assert "2 ranks share 1 cores" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-n", "0"], "--ranks 0: legal"),
        (["-n", "1"], "leave none to train of 1 rank; legal: 2 ranks or more, or placement"),
        (["-n", "1000"], "--ranks 1000: legal"),
        (["--placement", "apart"], "--placement apart: legal: shared, or the number"),
        (["--placement", "0"], "--placement 0: legal"),
        (
            ["-n", "3", "--placement", "3"],
            "train of 3 ranks; legal: coupling.ranks of at most 2, 4 ranks",
        ),
    ],
)
def test_invalid_ranks_are_refused(file, capsys, words, says):
    assert main(["couple", str(file), *words]) == 2
    assert says in capsys.readouterr().err


def test_a_file_that_is_not_there_is_refused(capsys, tmp_path):
    assert main(["couple", str(tmp_path / "nowhere.toml")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("samples", "room", "first"),
    [
        (1.1, 0.4, "Rank 1 waits 1.1 s for samples: the simulation is the bottleneck."),
        (0.4, 1.1, "Rank 0 waits 1.1 s for room: training is the bottleneck, and"),
    ],
)
def test_one_side_is_the_bottleneck_the_one_with_the_longer_waits(samples, room, first):
    from types import SimpleNamespace

    from lib_dlhpc.commands.couple import table_of, waits_of
    from lib_dlhpc.timeline import from_rows

    rows = [
        (0, "compute", "wait", "wait for room", 0.0, room),
        (1, "compute", "wait", "wait for samples", 0.0, samples),
    ]
    result = SimpleNamespace(timeline=from_rows(rows, 2, "measured"), seconds=2.0)
    predicted = SimpleNamespace(
        produce=0.1, consume=0.1, placement="separate", simulating=1, training=1
    )
    terms = {"train": {"predicted": 1.0, "simulated": 1.0, "measured": 1.0}}
    way = SimpleNamespace(result=result, predicted=predicted, terms=terms)
    lines = waits_of(way)
    assert lines[0].startswith(first)
    assert "waits 0.4 s" in lines[1] and "\n".join(lines).count("is the bottleneck") == 1
    assert table_of(way)[0] == "Mean of the ranks:"


def test_a_placement_that_was_not_faster_is_reported():
    from types import SimpleNamespace

    import numpy as np

    from lib_dlhpc.commands.couple import gain_of

    def way(seconds, exchange):
        terms = {
            "exchange": {"predicted": 1.0, "measured": exchange},
            "train": {"predicted": 1.0, "measured": 1.5},
        }
        result = SimpleNamespace(seconds=seconds, steps=3, weights=np.zeros(2))
        return SimpleNamespace(terms=terms, result=result, waited=0.0)

    assert "not faster" not in gain_of(way(5.0, 1.0), way(4.0, 9.0))
    output = gain_of(way(5.0, 1.0), way(6.0, 9.0))
    assert "not faster: exchange took 8 s more than predicted" in output
