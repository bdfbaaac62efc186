"""`dlhpc trace analyze`: what limits a run comes first; an invalid file is reported."""

import json

import pytest
from mpi_world import Ranks

from lib_dlhpc.cli import main
from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.store import save


def trace(more):
    """20 steps of 10 ms on 4 ranks; rank 2 computes `more` s in each."""
    world = Ranks(4)
    for _ in range(20):
        world.compute(0.01)
        world.compute(more, 2)
        world.shift(10_000)
        world.together()
    for rank in range(4):
        world.region(rank, "all of it", 0.0)
    return world.trace()


@pytest.fixture
def uneven(tmp_path):
    save(trace(more=0.005), tmp_path / "uneven.npz")
    return str(tmp_path / "uneven.npz")


def test_the_first_sentence_reports_what_limits_the_run(uneven, capsys):
    assert main(["trace", "analyze", uneven]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].startswith("Load imbalance limits this run: on average a rank comp")
    assert "Rank 2 computes 300 ms, 100 ms more than the others (50% more" in text
    assert "Look at rank 2" in text
    for part in ("parallel", "serialization", "Critical path", "Message sizes", "MPI_Allreduce"):
        assert part in text


def test_json_reports_the_same(uneven, capsys):
    assert main(["trace", "analyze", uneven, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    first = output["findings"][0]
    assert (first["kind"], first["rank"]) == ("load imbalance", 2)
    assert first["seconds"] == pytest.approx(0.1)
    assert output["pairs"] and all(pair["bytes"] == 200_000 for pair in output["pairs"])
    assert sum(size["messages"] for size in output["message sizes"]) == 80


def test_of_a_balanced_run_nothing_is_reported_to_be_wrong(tmp_path, capsys):
    save(trace(more=0.0), tmp_path / "even.npz")
    assert main(["trace", "analyze", str(tmp_path / "even.npz")]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "Nothing limits this run much: on average a rank computes 100% of 201 ms"
    )
    assert "No finding" in text


def test_a_trace_of_nothing_is_an_error_in_words(tmp_path, capsys):
    save(from_rows([], 2, "measured"), tmp_path / "nothing.npz")
    assert main(["trace", "analyze", str(tmp_path / "nothing.npz")]) != 0
    assert "without events" in capsys.readouterr().err


def test_control_signs_in_names_never_reach_the_terminal(tmp_path, capsys):
    rows = [(rank, "compute", "region", "a\x1b[31m", 0.0, 1.0 + rank) for rank in range(2)]
    save(from_rows(rows, 2, "measured"), tmp_path / "names.npz")
    assert main(["trace", "analyze", str(tmp_path / "names.npz")]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("action", ["analyze", "show"])
def test_long_names_are_cut_in_the_middle_and_stay_distinct(action, tmp_path, capsys):
    names = [f"model.layers.{n}.self_attention.core_attention.{op}" for n in (1, 2) for op in "qk"]
    rows = [(0, "compute", "region", name, at, at + 1.0) for at, name in enumerate(names)]
    save(from_rows(rows, 1, "measured"), tmp_path / "names.npz")
    assert main(["trace", action, str(tmp_path / "names.npz")]) == 0
    lines = [
        line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("model.")
    ]
    shown = {line.split()[0] for line in lines}
    assert len(shown) == 4 and all(name.endswith((".q", ".k")) for name in shown)
    assert max(map(len, shown)) <= 40
