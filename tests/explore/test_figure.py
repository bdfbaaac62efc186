"""A figure carries its drawing once, then only columns that the browser can read."""

import json
import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from patience import PATIENCE

from lib_dlhpc.explore.blocks import built
from lib_dlhpc.explore.blocks import figure as room
from lib_dlhpc.explore.blocks.built import compiled
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.server import serve
from lib_dlhpc.results.palette import SERIES


@pytest.fixture(scope="module")
def spec() -> dict:
    """A figure of two layers; compiled where it is used, for every worker collects this file."""
    layers = [
        {"data": {"name": name}, "mark": mark, "encoding": {}}
        for name, mark in (("bars", "bar"), ("rule", "rule"))
    ]
    return compiled({"title": "Two layers", "layer": layers})


def test_columns_become_what_json_can_carry(spec):
    figure = Figure(spec, {"bars": {"x": np.array([1.5, np.nan, np.inf]), "y": (1, 2, 3)}})
    assert figure.data == {"bars": {"x": [1.5, None, None], "y": [1, 2, 3]}}
    figure.update({"bars": {"x": [np.float64(2.0), np.int64(3)], "y": ["a", math.nan]}})
    sent = json.dumps(figure.get_state(["data", "signals"]), allow_nan=False)
    assert json.loads(sent)["data"] == {"bars": {"x": [2.0, 3], "y": ["a", None]}}


def test_what_is_not_given_stays(spec):
    figure = Figure(spec, {"bars": {"x": [1]}, "rule": {"x": [9]}}, "one bar", {"hover": 1})
    figure.update({"bars": {"x": [2]}})
    assert figure.data == {"bars": {"x": [2]}, "rule": {"x": [9]}}
    assert (figure.summary, figure.signals) == ("one bar", {"hover": 1})
    figure.update(summary="still one bar")
    assert figure.data["bars"] == {"x": [2]}


def test_an_update_is_one_message(spec, monkeypatch):
    figure = Figure(spec, {"bars": {"x": [1]}})
    sent: list[set[str]] = []
    monkeypatch.setattr(figure, "send_state", lambda key=None: sent.append(set(key or ())))
    for value in range(3):
        figure.update({"bars": {"x": [value]}}, f"bar {value}")
    assert len(sent) == 3
    assert all({"data", "summary", "serial"} <= keys and "spec" not in keys for keys in sent)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"bar": {"x": [1]}}, "no dataset 'bar'; it has: bars, rule"),
        ({"bars": {"x": [1, 2], "y": [1]}}, r"differ in length: \{'x': 2, 'y': 1\}"),
    ],
)
def test_a_mistake_is_named_and_changes_nothing(spec, data, complaint):
    figure = Figure(spec, {"bars": {"x": [1]}})
    with pytest.raises(ValueError, match=complaint):
        figure.update(data, "wrong")
    assert (figure.data, figure.summary, figure.serial) == ({"bars": {"x": [1]}}, "", 0)


def test_the_library_travels_once_a_kernel(spec, monkeypatch):
    one, two = Figure(spec), Figure(spec)
    assert one.runtime is two.runtime
    assert len(json.dumps(one.get_state())) < 30_000
    monkeypatch.delenv(room.PAGE_HAS_VEGA, raising=False)
    carried = room.Runtime()._esm
    monkeypatch.setenv(room.PAGE_HAS_VEGA, "1")
    assert len(room.Runtime()._esm) < 100 < 400_000 < len(carried) < 700_000


def test_a_stored_notebook_shows_no_address(spec):
    assert repr(Figure(spec)) == "Figure('Two layers')"


def channels(color: str) -> list[int]:
    return [int(color[at : at + 2], 16) for at in (1, 3, 5)]


def luminance(parts: list[float]) -> float:
    """As WCAG defines it, of channels from 0 to 255."""
    shares = [part / 255 for part in parts]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("color", [each for each in SERIES if each != "#000000"])
def test_words_in_the_color_of_a_line_can_be_read(color, scheme):
    style = (room.HERE / "static" / "figure.css").read_text(encoding="utf-8")
    theme = next(serve.HERE.rglob("theme.css")).read_text(encoding="utf-8")
    (share,) = re.findall(rf'\[fill="{color}"\].*srgb, {color} (\d+)%, var\(--i\)', style)
    ink, card, paper = (
        channels(re.findall(rf"--dl-{name}: (#\w{{6}})", theme)[scheme])
        for name in ("ink", "card", "paper")
    )
    mixed = [
        int(share) / 100 * a + (1 - int(share) / 100) * b
        for a, b in zip(channels(color), ink, strict=True)
    ]
    for ground in (card, paper):
        low, high = sorted((luminance(mixed), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 4.5


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such lock")
def test_what_several_processes_ask_for_at_a_time_is_made_once(tmp_path):
    """Visitors of a class come together, and a front page takes twenty seconds."""
    code = f"""
import sys, time
from pathlib import Path
from lib_dlhpc.explore.blocks import built

def make():
    with open({str(tmp_path / "made")!r}, "a") as file:
        file.write("made ")
    time.sleep(0.5)
    return "text"

built._folder = lambda: Path({str(tmp_path / "kept")!r})
print("ready", flush=True)
sys.stdin.readline()
assert built.kept("toy", "json", "key", make).read_text() == "text"
"""
    (tmp_path / "kept").mkdir()
    words = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    asking = [subprocess.Popen(words, **pipes) for _ in range(3)]
    assert [each.stdout.readline() for each in asking] == [b"ready\n"] * 3
    for each in asking:
        each.stdin.write(b"go\n")
        each.stdin.flush()
    for each in asking:
        each.communicate(timeout=PATIENCE)
    assert [each.returncode for each in asking] == [0, 0, 0]
    assert (tmp_path / "made").read_text() == "made "
    (file,) = (tmp_path / "kept").iterdir()
    assert file.suffix == ".json"


def test_a_second_checkout_leaves_the_drawings_of_the_first(tmp_path, monkeypatch):
    """They share a folder; only versions older than the newest four go."""
    made: list[str] = []

    def used(key: str) -> None:
        def make() -> str:
            made.append(key)
            return key

        built.kept("toy", "json", key, make)

    monkeypatch.setattr(built, "_folder", lambda: tmp_path)
    for age, key in enumerate("abcde"):
        used(key)
        os.utime(built._place("toy", "json", key), (age, age))
    for key in "bcde":
        used(key)
    assert made == list("abcde") and len(list(tmp_path.iterdir())) == 4
    used("a")
    assert made == list("abcdea") and not built._place("toy", "json", "b").exists()
