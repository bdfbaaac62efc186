"""Amounts by their parts: to one scale, with their sums, and each part named in its bar or below."""

import pytest

from lib_dlhpc.explore.hybrid_parallel.runs import Setting, experiment
from lib_dlhpc.explore.slides.diagram import BLUE, ORANGE
from lib_dlhpc.explore.slides.parts import of_steps, stacked
from lib_dlhpc.prediction import predict

INKS = {"bytes": BLUE, "latency": ORANGE}


def test_parts_are_to_scale_and_their_sum_is_below_the_name():
    own = stacked({"a": {"bytes": 3.0, "latency": 1.0}, "b": {"bytes": 2.0}}, INKS, "s", "time")
    long, short, other = (shape for shape in own.shapes if shape.fill)
    assert long.wide == pytest.approx(3 * short.wide) == pytest.approx(1.5 * other.wide)
    assert short.left == pytest.approx(long.left + long.wide)
    assert {"a\n4 s", "b\n2 s"} <= {shape.text for shape in own.shapes}
    assert own.said == "a: bytes 3 s, latency 1 s; b: bytes 2 s; time"


def test_a_part_without_room_for_its_name_is_in_the_key_and_one_that_nobody_sees_is_not():
    small = stacked({"a": {"bytes": 1.0, "latency": 0.05}}, INKS, "s", "time")
    assert small.shapes[-1].text == "time; orange: latency"
    none = stacked({"a": {"bytes": 1.0, "latency": 0.001}}, INKS, "s", "time")
    assert none.shapes[-1].text == "time"


def test_the_parts_of_a_step_are_all_of_it():
    split = Setting("words", 2, 2, 2, 4)
    steps = {"1": predict(experiment(split.alone)), "8": predict(experiment(split))}
    own = of_steps(steps)
    first, second = (
        sum(shape.wide for shape in own.shapes if shape.fill and shape.top == top)
        for top in sorted({shape.top for shape in own.shapes if shape.fill})
    )
    ratio = float(steps["8"].step_time / steps["1"].step_time)
    assert second / first == pytest.approx(ratio, rel=1e-6)
