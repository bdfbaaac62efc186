"""Charts show what they are given: shares add up, walls are walls, bounds are called bounds."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from experiment_page import fields
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.explore.blocks import charts, drawings
from lib_dlhpc.explore.blocks.built import dataset_names

NODES = 2 ** np.arange(9)
STATES = {
    "step": charts.step_state({"forward": 1.0, "backward": 2.0}, {"forward": 1.0}, best=2.0),
    "scaling": charts.scaling_state(NODES, 0.9 * NODES, NODES, 0.5 * NODES, (8, 7.2)),
    "efficiency": charts.scaling_state(NODES, 0.9 * NODES, now=(8, 7.2)),
    "memory": charts.memory_state({"weights": 1e9, "activations": 9e9}, 16e9),
    "totals": charts.totals_state(NODES, 1 / NODES, NODES + 9, NODES, now=8),
    "sensitivity": charts.sensitivity_state({"network bandwidth": 0.25, "compute rate": 0.1}),
}

seconds = st.floats(1e-7, 1e4)


def rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("name", drawings.DRAWINGS)
def test_a_state_fills_every_dataset_and_field_of_its_drawing(name: str) -> None:
    spec, (data, summary) = drawings.DRAWINGS[name](), STATES[name]
    assert dataset_names(spec) <= set(data)
    assert fields(spec) <= {column for columns in data.values() for column in columns}
    shown = {(d, c) for d, columns in spec["usermeta"]["table"].items() for c in columns}
    assert shown <= {(d, c) for d, columns in data.items() for c in columns}
    assert summary.endswith(".")
    json.dumps(charts.chart(name, data, summary).get_state(["data"]), allow_nan=False)


def test_an_unknown_drawing_is_named_with_the_legal_ones() -> None:
    with pytest.raises(KeyError, match=r"no drawing .*steps.*memory.*step"):
        charts.drawing("steps")


@given(st.dictionaries(st.sampled_from(list(charts.PARTS)), seconds, min_size=1))
def test_the_parts_of_a_step_lie_end_to_end(terms: dict[str, float]) -> None:
    data, summary = charts.step_state(terms, terms)
    for row in ("predicted", "nothing hidden"):
        parts = [part for part in rows(data["parts"]) if part["row"] == row]
        assert [part["part"] for part in parts] == list(terms)
        assert parts[0]["start"] == 0
        for before, after in pairwise(parts):
            assert before["stop"] == after["start"] < after["stop"]
        assert parts[-1]["stop"] == pytest.approx(sum(terms.values()))
    assert max(terms, key=lambda part: terms[part]) in summary


@given(
    st.dictionaries(st.sampled_from(list(charts.LEDGER)), st.floats(1, 1e13), min_size=1),
    st.floats(1e6, 1e12),
)
def test_what_lies_beyond_the_wall_is_marked(ledger: dict[str, float], capacity: float) -> None:
    data, summary = charts.memory_state(ledger, capacity)
    over = sum(row["over"] for row in rows(data["terms"]))
    total = sum(ledger.values())
    assert over == pytest.approx(max(0.0, total - capacity), rel=1e-6, abs=1e-3)
    (verdict,) = data["wall"]["words"]
    assert ("not" in verdict) == ("not" in summary) == (total > capacity)


def test_efficiency_is_speedup_over_devices_and_bounds_are_called_bounds() -> None:
    data, summary = charts.scaling_state(NODES, NODES**0.9, NODES, NODES**0.8, (16, 16**0.9))
    for row in rows(data["lines"]):
        assert row["efficiency"] == pytest.approx(row["speedup"] / row["devices"])
    for name in {row["line"] for row in rows(data["lines"])} - {"predicted", "ideal"}:
        assert "bound" in name
    assert "16 devices" in summary


def test_every_total_is_one_at_the_present_choice() -> None:
    data, summary = STATES["totals"]
    assert {row["relative"] for row in rows(data["curves"]) if row["devices"] == 8} == {1.0}
    assert "8 devices" in summary and "now" in data["ends"]["words"][0]


@given(st.lists(st.floats(0.01, 100), min_size=3, max_size=3))
def test_labels_at_the_end_of_lines_do_not_meet(places: list[float]) -> None:
    moved = np.log(sorted(charts.spread_labels(places, [0.01, 100.0])))
    assert np.diff(moved).min() > 0.05 * np.log(1e4)


def test_the_largest_gain_comes_first() -> None:
    data, summary = charts.sensitivity_state({"a": 0.01, "b": 0.3, "c": -1e-12})
    assert data["parts"]["part"] == ["b", "a", "c"] and min(data["parts"]["shorter"]) >= 0
    assert "b" in summary and "30%" in summary
    assert "No single part" in charts.sensitivity_state({"a": 0.001})[1]


@pytest.mark.parametrize("palette", [charts.PARTS, charts.TOTALS, charts.LINES])
def test_no_two_marks_of_a_chart_look_alike(palette: dict[str, Any]) -> None:
    assert len({json.dumps(style) for style in palette.values()}) == len(palette)
