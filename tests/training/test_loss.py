"""Laws of losses: they equal plain formulas, gradients match finite differences, uneven parts sum to the total."""

from itertools import pairwise

import numpy as np
import pytest
from layer_references import assert_gradient

from lib_dlhpc.training.loss import mean_squared_error, softmax_cross_entropy, split_cross_entropy

RNG = np.random.default_rng(4)
CUTS = [(5,), (1, 4), (2, 0, 3), (1, 1, 1, 1, 1), (0, 5)]
SHAPES = [(5, 4), (5, 3, 4)]  # images, and sequences


def parts_of(cut):
    ends = np.cumsum([0, *cut])
    return [slice(a, b) for a, b in pairwise(ends)]


def logits_and_labels(shape, scale=3.0):
    return scale * RNG.normal(size=shape), RNG.integers(shape[-1], size=shape[:-1])


@pytest.mark.parametrize("scale", [0.1, 3.0, 1000.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy_is_the_mean_of_the_log_of_a_sum_of_exponentials(shape, scale):
    logits, labels = logits_and_labels(shape, scale)
    rows = logits.reshape(-1, shape[-1]).astype(np.longdouble)
    chosen = rows[np.arange(len(rows)), labels.ravel()]
    expected = np.mean(np.log(np.sum(np.exp(rows), axis=1)) - chosen)
    loss, _ = softmax_cross_entropy(logits.copy(), labels, shape[0])
    assert loss == pytest.approx(float(expected), rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_equal_differences(shape):
    logits, labels = logits_and_labels(shape)
    _, gradient = softmax_cross_entropy(logits.copy(), labels, 5)
    assert_gradient(
        "logits", gradient, lambda: softmax_cross_entropy(logits.copy(), labels, 5)[0], logits
    )
    targets = RNG.normal(size=shape)
    _, gradient = mean_squared_error(logits.copy(), targets, 5)
    assert_gradient(
        "outputs", gradient, lambda: mean_squared_error(logits.copy(), targets, 5)[0], logits
    )


@pytest.mark.parametrize("cut", [(4,), (1, 3), (2, 1, 1)])
@pytest.mark.parametrize("shape", SHAPES)
def test_split_classes_sum_to_all(shape, cut):
    logits, labels = logits_and_labels(shape)
    whole, gradient = softmax_cross_entropy(logits.copy(), labels, 5)
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    found = [
        split_cross_entropy(logs[..., part].copy(), labels, 5, part.start) for part in parts_of(cut)
    ]
    assert sum(share for share, _ in found) == pytest.approx(whole, rel=1e-13)
    joined = np.concatenate([share for _, share in found], axis=-1)
    np.testing.assert_allclose(joined, gradient, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_uneven_parts_sum_to_the_full_batch(shape, cut):
    logits, labels = logits_and_labels(shape)
    targets = RNG.normal(size=shape)
    for loss, wanted in ((softmax_cross_entropy, labels), (mean_squared_error, targets)):
        whole, gradient = loss(logits.copy(), wanted, 5)
        found = [loss(logits[part].copy(), wanted[part], 5) for part in parts_of(cut)]
        assert sum(share for share, _ in found) == pytest.approx(whole, rel=1e-14)
        joined = np.concatenate([share for _, share in found])
        np.testing.assert_allclose(joined, gradient, rtol=1e-14)


def test_mean_squared_error_is_the_mean_of_squares():
    outputs, targets = RNG.normal(size=(2, 5, 3))
    loss, gradient = mean_squared_error(outputs.copy(), targets, 5)
    assert loss == pytest.approx(np.mean((outputs - targets) ** 2), rel=1e-14)
    np.testing.assert_allclose(gradient, 2 * (outputs - targets) / 15, rtol=1e-14)


def test_targets_may_lack_the_last_axis_of_one_output_but_no_element():
    outputs, targets = RNG.normal(size=(5, 4, 1)), RNG.normal(size=(5, 4))
    loss, _ = mean_squared_error(outputs.copy(), targets, 5)
    assert loss == pytest.approx(np.mean((outputs[..., 0] - targets) ** 2))
    with pytest.raises(ValueError, match="reshape"):
        mean_squared_error(RNG.normal(size=(4, 4)), np.zeros(4), 4)


@pytest.mark.parametrize("loss", [softmax_cross_entropy, mean_squared_error])
def test_the_gradient_is_right_however_the_outputs_lie_in_memory(loss):
    logits, labels = logits_and_labels((5, 3, 4))
    wanted = labels if loss is softmax_cross_entropy else RNG.normal(size=logits.shape)
    _, expected = loss(logits.copy(), wanted, 5)
    _, gradient = loss(np.array(logits.T, order="C").T, wanted, 5)
    np.testing.assert_allclose(gradient, expected, rtol=1e-14)


@pytest.mark.parametrize("loss", [softmax_cross_entropy, mean_squared_error])
def test_float32_stays_float32(loss):
    logits, labels = logits_and_labels((5, 4))
    wanted = labels if loss is softmax_cross_entropy else RNG.normal(size=logits.shape)
    exact, expected = loss(logits.copy(), wanted, 5)
    found, gradient = loss(logits.astype(np.float32), wanted, 5)
    assert gradient.dtype == np.float32
    assert found == pytest.approx(exact, rel=1e-5)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-7)


def test_cross_entropy_of_huge_logits_is_finite():
    with np.errstate(all="raise", under="ignore"):
        loss, gradient = softmax_cross_entropy(np.array([[1e4, -1e4]]), np.array([1]), 1)
    assert loss == pytest.approx(2e4)
    np.testing.assert_allclose(gradient, [[1, -1]])
