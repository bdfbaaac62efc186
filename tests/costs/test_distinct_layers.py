"""What is known of the layers of a network that differ is known of all of them."""

import numpy as np
import pytest

from lib_dlhpc.costs import host, roofline
from lib_dlhpc.costs.distinct_layers import distinct_layers
from lib_dlhpc.spec.experiment import read_model


@pytest.mark.parametrize("name", ["bert-base", "qwen3-30b-a3b", "resnet50", "nemotron-h-8b"])
def test_counts_of_all_layers_are_those_of_the_unlike_ones(name):
    model = read_model(name)
    few, place = distinct_layers(model)
    assert len(few.layers) < len(model.layers) == len(place)
    for one, every in zip(roofline._counts(few, 2), roofline._counts(model, 2), strict=True):
        assert np.array_equal(one[place], every)
    for one, every in zip(host.kernels(few), host.kernels(model), strict=True):
        assert np.array_equal(one[place], every)
    waits = [at for at, each in enumerate(model.layers) if at and each.traits.host_waits(each)]
    assert host.waits(model) == tuple(waits)


def test_layers_that_read_unlike_many_elements_are_unlike():
    """A concatenation's likeness does not tell how many inputs it has."""
    model = read_model("inception-v3")
    _, place = distinct_layers(model)
    read = model.layer_input_elements
    for kind in range(place.max() + 1):
        assert len({*read[place == kind].tolist()}) == 1
