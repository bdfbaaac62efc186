"""Laws of a Model: sums equal totals, arrays follow the layers, every layer fits its inputs."""

import pickle
from math import prod

import numpy as np
import pytest

from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.spec.networks import FAMILIES, build


def named(name: str) -> Model:
    options = catalog.body("models", name)
    return build(options.pop("family"), options, name)


every_model = pytest.mark.parametrize("name", catalog.names("models"))


@every_model
def test_every_input_names_an_earlier_layer_and_shapes_chain(name):
    model = named(name)
    shapes = {"input": model.input_shape}
    for layer in model.layers:
        assert layer.name not in shapes
        assert layer.inputs and set(layer.inputs) <= set(shapes)
        assert layer.input_shape == shapes[layer.inputs[0]]
        assert all(extent >= 1 for extent in layer.output_shape)
        shapes[layer.name] = layer.output_shape


@every_model
def test_every_output_is_read_or_is_a_head(name):
    model = named(name)
    read = {source for layer in model.layers for source in layer.inputs}
    heads = [layer.name for layer in model.layers if layer.name not in read]
    assert "input" in read
    assert len(heads) == (2 if name.startswith("bert") else 1)
    assert model.layers[-1].name in heads
    assert model.output_shape == model.layers[-1].output_shape


@every_model
def test_totals_are_the_sums_of_the_layer_arrays(name):
    model = named(name)
    for quantity in ("parameters", "forward_flop", "stored", "mask_bytes"):
        column = getattr(model, f"layer_{quantity}")
        assert column.dtype == np.float64 and column.shape == (len(model.layers),)
        assert not column.flags.writeable
        np.testing.assert_array_equal(column, [getattr(layer, quantity) for layer in model.layers])
        assert column.sum() == pytest.approx(getattr(model, quantity), rel=1e-12)
    assert model.train_flop == model.forward_flop + model.backward_flop
    assert model.backward_flop == 2 * model.forward_flop


@every_model
def test_only_matrix_arithmetic_costs_flop(name):
    for layer in named(name).layers:
        products = {"conv", "dense", "attention", "lstm", "experts"}
        products |= {"latent_attention", "gated_experts", "state_space", "squared_relu_experts"}
        products |= {"indexer", "sparse_latent_attention"}
        assert (layer.forward_flop > 0) == (layer.kind in products)


@every_model
def test_family_and_options_rebuild_the_model(name):
    model = named(name)
    assert FAMILIES[model.family](**model.options).layers == model.layers
    assert build(model.family, model.options, name) == model


def test_input_elements_count_every_input():
    model = Model(
        "sum",
        (
            Layer("a", "dense", ("input",), (4,), (3,)),
            Layer("b", "dense", ("input",), (4,), (3,)),
            Layer("c", "add", ("a", "b"), (3,), (3,)),
        ),
        (4,),
    )
    assert list(model.layer_input_elements) == [4, 4, 6]
    assert list(model.layer_output_elements) == [3, 3, 3]


def test_output_elements_follow_the_shapes():
    model = named("resnet50")
    sizes = [prod(layer.output_shape) for layer in model.layers]
    np.testing.assert_array_equal(model.layer_output_elements, sizes)


def test_repr_fits_a_line_and_names_what_matters():
    text = repr(named("resnet50"))
    assert text == (
        "Model(resnet50: 174 layers, 25.56 M parameters, 8.178 GFLOP forward per sample)"
    )
    assert "174.6 billion parameters" in repr(named("gpt3-175b"))


def test_a_model_is_a_value():
    model = named("resnet50")
    copy = pickle.loads(pickle.dumps(model))
    assert copy == model and hash(copy) == hash(model)
    assert model != named("resnet50-v1")
    with pytest.raises(AttributeError):
        model.name = "other"
