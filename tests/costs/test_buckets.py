"""Laws of buckets: no byte is lost, last layer first, ready when their last layer is done."""

import numpy as np
import pytest

from lib_dlhpc.costs.buckets import buckets, ready_times
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model


@pytest.mark.parametrize("name", catalog.names("models"))
@pytest.mark.parametrize("element", [2, 4])
def test_buckets_hold_every_gradient_once_last_layer_first(name, element):
    model = read_model(name)
    for bucket in (1.0, 1e4, 1e6, 25e6, 1e12, np.inf):
        cut = buckets(model, bucket, element)
        assert cut.sizes.sum() == pytest.approx(model.parameters * element, rel=1e-12)
        assert (np.diff(cut.last_layer) < 0).all()
        assert (cut.sizes[:-1] >= bucket).all()
        edges = [len(model.layers), *cut.last_layer]
        for size, above, below in zip(cut.sizes, edges, edges[1:], strict=False):
            assert size == model.layer_parameters[below:above].sum() * element
    assert len(buckets(model, 1e18, element).sizes) == 1


def test_a_model_without_parameters_has_one_empty_bucket():
    model = read_model({"family": "sequential", "input": [4], "layers": [{"kind": "relu"}]})
    assert model.parameters == 0
    cut = buckets(model, 25e6, 4)
    assert list(cut.sizes) == [0]


def test_an_array_of_bucket_sizes_equals_the_scalar_calls():
    model = read_model("resnet50")
    sizes = np.array([[1e6, 25e6, 1e6], [1e9, 5e6, 2.5e7]])
    both = buckets(model, sizes, 4)
    backward = np.linspace(1, 2, len(model.layers))
    ready = ready_times(backward, both.last_layer)
    for at in np.ndindex(sizes.shape):
        one = buckets(model, float(sizes[at]), 4)
        count = len(one.sizes)
        np.testing.assert_array_equal(both.sizes[at][:count], one.sizes)
        assert not both.sizes[at][count:].any()
        np.testing.assert_array_equal(ready[at][:count], ready_times(backward, one.last_layer))


def test_a_bucket_is_ready_when_its_last_layer_is_done():
    backward = np.array([1.0, 2.0, 4.0, 8.0])
    assert list(ready_times(backward, np.array([3, 1, 0]))) == [8, 14, 15]
    many = ready_times(np.stack([backward, 2 * backward]), np.array([3, 1, 0]))
    np.testing.assert_array_equal(many, [[8, 14, 15], [16, 28, 30]])
