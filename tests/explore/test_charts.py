"""Charts show what they are given: shares add up, walls are walls, bounds are called bounds."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_page import fields
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.explore.blocks import bars, charts
from lib_dlhpc.explore.blocks.built import dataset_names
from lib_dlhpc.explore.blocks.drawing import all_drawings
from lib_dlhpc.explore.compare.charts import LOOKS
from lib_dlhpc.explore.explorer import device_charts
from lib_dlhpc.explore.failures import charts as failures
from lib_dlhpc.explore.failures import drawings as failures_drawings
from lib_dlhpc.explore.gantt import chart as gantt
from lib_dlhpc.explore.hybrid_parallel import charts as hybrid
from lib_dlhpc.explore.memory_wall.charts import memory_state
from lib_dlhpc.explore.one_step import charts as one_step
from lib_dlhpc.explore.traces import charts as traces
from lib_dlhpc.results import palette

PAGES = Path(charts.__file__).parents[1]
NODES = 2 ** np.arange(9)
STATES = {
    "scaling": device_charts.scaling_state(NODES, 0.9 * NODES, NODES, 0.5 * NODES, (8, 7.2)),
    "efficiency": device_charts.scaling_state(NODES, 0.9 * NODES, now=(8, 7.2)),
    "memory": memory_state({"weights": 1e9, "activations": 9e9}, 16e9),
    "totals": device_charts.totals_state(NODES, 1 / NODES, NODES + 9, NODES, now=8),
    "sensitivity": device_charts.sensitivity_state(
        {"network bandwidth": 0.25, "compute rate": 0.1}
    ),
}


def rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("name", STATES)
def test_a_state_fills_every_dataset_and_field_of_its_drawing(name):
    spec, (data, summary) = all_drawings()[name](), STATES[name]
    assert dataset_names(spec) <= set(data)
    assert fields(spec) <= {column for columns in data.values() for column in columns}
    shown = {(d, c) for d, columns in spec["usermeta"]["table"].items() for c in columns}
    assert shown <= {(d, c) for d, columns in data.items() for c in columns}
    assert summary.endswith(".")
    json.dumps(charts.chart(name, data, summary).get_state(["data"]), allow_nan=False)


@pytest.fixture(scope="module")
def specs() -> dict[str, dict[str, Any]]:
    return {name: draw() for name, draw in all_drawings().items()}


def test_no_two_entries_of_a_legend_look_the_same(specs):
    for name, spec in specs.items():
        for legend in (spec["usermeta"].get(kind, []) for kind in ("legend", "ends")):
            looks = [
                {key: value for key, value in each.items() if key != "label"} for each in legend
            ]
            assert all(looks.count(look) == 1 for look in looks), name


def test_a_title_has_no_legend_in_it(specs):
    """What marks mean stands below the title, with the legend."""
    assert not [name for name, spec in specs.items() if "(" in spec["title"]]
    assert specs["rank_times"]["title"] == "Who computes, and who is idle?"
    assert specs["rank_times"]["usermeta"]["note"] == "Plain: computes; hatched: idle."


def test_lines_with_names_at_their_ends_can_be_named_in_a_legend(specs):
    found = 0
    for name, spec in specs.items():
        ends = [layer for layer in spec["layer"] if layer.get("data") == {"name": "ends"}]
        inks = [
            each["encoding"]["color"]["scale"]["domain"]
            for each in ends
            if "color" in each["encoding"]
        ]
        assert [each["label"] for each in spec["usermeta"].get("ends", [])] == (inks or [[]])[0], (
            name
        )
        found += bool(inks)
    assert found > 15


def test_an_unknown_drawing_is_named_with_the_legal_ones():
    with pytest.raises(KeyError, match=r"no drawing .*steps.*memory.*step"):
        charts.drawing("steps")


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1e4)))
def test_stacked_parts_lie_end_to_end(parts):
    lengths = charts.stacked(parts)
    assert {name for name, *_ in lengths} <= {name for name, size in parts.items() if size > 0}
    assert all(start < stop for _, start, stop in lengths)
    for (_, _, before), (_, after, _) in pairwise(lengths):
        assert before == after
    assert sum(stop - start for _, start, stop in lengths) == pytest.approx(sum(parts.values()))


SIZES = st.dictionaries(st.sampled_from("xyz"), st.floats(1, 1e4), min_size=1)


@given(st.dictionaries(st.sampled_from("ABC"), SIZES, min_size=1))
def test_bars_end_where_their_sums_stand_and_keep_their_order(parts):
    inks = dict.fromkeys("xyz", palette.FORWARD)
    data = bars.stacks(parts, inks, "s", words={"A": "the first"})
    ends = dict(zip(data["parts"]["row"], data["parts"]["stop"], strict=True))
    assert list(ends) == list(parts) == data["sums"]["row"]
    assert list(ends.values()) == pytest.approx(data["sums"]["stop"])
    assert ("A" in parts) == ("the first" in data["sums"]["words"])


def test_rows_become_columns():
    assert charts.columns([{"a": 1, "b": 2}, {"a": 3, "b": 4}]) == {"a": [1, 3], "b": [2, 4]}
    assert charts.columns([]) == {}


@given(
    st.dictionaries(st.sampled_from(list(palette.MEMORY)), st.floats(1, 1e13), min_size=1),
    st.floats(1e6, 1e12),
)
def test_what_lies_beyond_the_wall_is_marked(ledger, capacity):
    data, summary = memory_state(ledger, capacity)
    over = sum(row["over"] for row in rows(data["terms"]))
    total = sum(ledger.values())
    assert over == pytest.approx(max(0.0, total - capacity), rel=1e-6, abs=1e-3)
    (verdict,) = data["wall"]["words"]
    assert ("not" in verdict) == ("not" in summary) == (total > capacity)


def test_efficiency_is_speedup_over_devices_and_bounds_are_called_bounds():
    data, summary = device_charts.scaling_state(NODES, NODES**0.9, NODES, NODES**0.8, (16, 16**0.9))
    for row in rows(data["lines"]):
        assert row["efficiency"] == pytest.approx(row["speedup"] / row["devices"])
    for name in {row["line"] for row in rows(data["lines"])} - {"predicted", "ideal"}:
        assert "bound" in name
    assert "16 devices" in summary


def test_every_total_is_one_at_the_present_choice():
    data, summary = STATES["totals"]
    assert {row["relative"] for row in rows(data["curves"]) if row["devices"] == 8} == {1.0}
    assert "8 devices" in summary and "now" in data["ends"]["words"][0]


@given(st.lists(st.floats(0.01, 100), min_size=3, max_size=3))
def test_labels_at_the_end_of_lines_do_not_meet(places):
    moved = np.log(sorted(charts.spread_labels(places, [0.01, 100.0])))
    assert np.diff(moved).min() > 0.05 * np.log(1e4)


def test_the_largest_gain_comes_first():
    data, summary = device_charts.sensitivity_state({"a": 0.01, "b": 0.3, "c": -1e-12})
    assert data["parts"]["part"] == ["b", "a", "c"] and min(data["parts"]["shorter"]) >= 0
    assert "b" in summary and "30%" in summary
    assert "No single part" in device_charts.sensitivity_state({"a": 0.001})[1]


@pytest.mark.parametrize("marks", [palette.TERMS, device_charts.TOTALS, device_charts.LINES])
def test_no_two_marks_of_a_chart_look_alike(marks):
    assert len({json.dumps(style) for style in marks.values()}) == len(marks)


def test_waiting_has_one_color_on_every_page():
    """Other kinds of waiting in one chart are lighter or darker; the front page has its colors from theme.css."""
    theme = (PAGES / "server/voila/templates/dlhpc/static/theme.css").read_text(encoding="utf-8")
    front = (PAGES / "front/static/front.js").read_text(encoding="utf-8")
    for name in ("forward", "backward", "bubble", "idle", "input", "checkpoint"):
        assert f"--dl-{name}: {getattr(palette, name.upper())};" in theme
    assert "var(--dl-idle)" in front and "--dl-bad" not in front
    gray = {palette.IDLE, palette.IDLE_LIGHT, palette.IDLE_DARK}
    waits = [look[0] for what, look in traces.LOOKS.items() if what.startswith("waits")]
    waits += [traces.TERMS[what] for what in traces.IDLE]
    waits += [gantt.LOOKS["idle"].color, hybrid.TERMS["waiting"]]
    waits += [one_step.OPERATORS[one_step.LAUNCHES], one_step.PASSES[one_step.BETWEEN]]
    assert set(waits) <= gray


def test_work_done_again_looks_like_recomputation():
    assert failures.LOST["repeated work"] == palette.BACKWARD
    assert failures.PHASES["repeated work"][::2] == (palette.BACKWARD, True)
    assert failures_drawings.LINES["repeated work"][0] == palette.BACKWARD


def test_an_engine_has_no_color_of_a_cause(specs):
    """Symbol, dash and inside distinguish them: measured is solid, simulated hollow, predicted between."""
    marks = [layer["mark"] for layer in specs["swept"]["layer"]]
    inks = {mark[name] for mark in marks for name in ("color", "fill", "stroke") if name in mark}
    assert inks == {palette.ENGINE} and palette.ENGINE not in palette.TERMS.values()
    key = specs["swept"]["usermeta"]["legend"]
    assert [each["opacity"] for each in key] == [0.3, 0.0, 0.0, 1.0]
    assert len({shape for shape, _, _ in LOOKS.values()}) == len(LOOKS)


def test_a_table_says_percent_where_the_axis_does():
    table = charts.drawing("published_error")["usermeta"]["table"]["points"]
    assert table == {"line": "rule", "x": "batch", "y": "error (%)", "words": "who"}
