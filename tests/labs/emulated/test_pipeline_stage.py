"""Stages: any partition equals the full network, and overwritten inputs are recorded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.labs.emulated.pipeline_stage import Stage
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.training.loss import softmax_cross_entropy

WIDTHS = (5, 4, 6, 3)
X, Y = np.random.default_rng(0).normal(size=(7, 5)), np.arange(7) % 3


def stage(cut, number=0, parts=1):
    made = Stage(WIDTHS, number, cut, seed=3)
    made.load(np.array_split(X, parts), np.array_split(Y, parts))
    return made


def run(whole):
    whole.forward(0)
    return whole.backward(0, None, len(Y))


def test_gradients_are_finite_differences():
    whole, epsilon = stage((0, 3)), 1e-6
    run(whole)
    exact, found = whole.gradients.copy(), np.empty_like(whole.gradients)
    for k in range(len(found)):
        values = []
        for sign in (1, -1):
            whole.weights[k] += sign * epsilon
            values.append(run(whole)[0])
            whole.weights[k] -= sign * epsilon
        found[k] = (values[0] - values[1]) / (2 * epsilon)
    np.testing.assert_allclose(found, exact, atol=1e-8)


@given(cut=st.sampled_from([(0, 1, 3), (0, 2, 3), (0, 1, 2, 3)]), parts=st.integers(1, 7))
def test_any_partition_into_stages_and_microbatches_equals_one_rank(cut, parts):
    whole = stage((0, 3))
    value, _ = run(whole)
    stages = [stage(cut, number, parts) for number in range(len(cut) - 1)]
    total, losses = [np.zeros_like(s.gradients) for s in stages], 0.0
    for i in range(parts):
        y = None
        for each in stages:
            y = each.forward(i, y)
        for k, each in reversed(list(enumerate(stages))):
            part, y = each.backward(i, y, len(Y))
            losses += part
            total[k] += each.gradients
    np.testing.assert_allclose(np.concatenate(total), whole.gradients, atol=1e-14)
    np.testing.assert_array_equal(np.concatenate([s.weights for s in stages]), whole.weights)
    assert (
        losses
        == pytest.approx(value)
        == pytest.approx(softmax_cross_entropy(whole.forward(0), Y, len(Y))[0])
    )


def test_an_input_overwritten_before_backward_is_recorded():
    last = stage((0, 2, 3), number=1, parts=2)
    room = np.ones((4, 6))
    last.forward(0, room)
    room += 1
    last.forward(1, room[:3])
    last.backward(1, None, 7)
    last.backward(0, None, 7)
    assert last.overwritten == [0]
    assert last.done == [("forward", 0), ("forward", 1), ("backward", 1), ("backward", 0)]


def test_outputs_may_be_written_to():
    whole = stage((0, 3))
    run(whole)
    before = whole.gradients.copy()
    whole.forward(0)[:] = 0
    whole.backward(0, None, len(Y))
    np.testing.assert_array_equal(whole.gradients, before)


def test_impossible_calls_are_reported():
    middle = stage((0, 1, 2, 3), number=1)
    for give, words in (
        (
            lambda: middle.forward(0, np.ones((7, 5))),
            r"expected shape \(7, 4\), got shape \(7, 5\)",
        ),
        (lambda: middle.forward(0, None), "got None"),
        (lambda: middle.backward(0, np.ones((7, 6)), 7), "its forward has not run"),
    ):
        with pytest.raises(LabError, match=words):
            give()
