"""ONNX files as models: parameters, layers, and what is not understood."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing import import_model


def write(path, sample, weights, nodes):
    """Write a graph whose last node gives its output."""
    held = [
        numpy_helper.from_array(np.zeros(shape, np.float32), name)
        for name, shape in weights.items()
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *sample])
    y = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    save(helper.make_model(helper.make_graph(nodes, "net", [x], [y], held)), path)
    return path


def node(kind, inputs, output, **attributes):
    return helper.make_node(
        kind, inputs.split(), [output], name=f"{kind} of {output}", **attributes
    )


IMAGE = [
    node("Conv", "x w b", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
    node("BatchNormalization", "c scale shift mean var", "n"),
    node("Relu", "n", "r"),
    node("Conv", "r v", "d", kernel_shape=[1, 1]),
    node("Add", "d n", "s"),
    node("MaxPool", "s", "p", kernel_shape=[2, 2], strides=[2, 2]),
    node("GlobalAveragePool", "p", "g"),
    node("Flatten", "g", "f"),
    node("MatMul", "f m", "h"),
    node("Add", "h e", "i"),
    node("Gemm", "i o", "y", transB=1),
]
WEIGHTS = {"w": (6, 3, 3, 3), "b": (6,), "v": (6, 6, 1, 1), "m": (6, 10), "e": (10,), "o": (4, 10)}
WEIGHTS |= dict.fromkeys(("scale", "shift", "mean", "var"), (6,))


def test_an_image_network(tmp_path):
    found = import_model(write(tmp_path / "net.onnx", (3, 8, 8), WEIGHTS, IMAGE))
    layers = found.model.layers
    assert [layer.kind for layer in layers] == [
        *["conv", "batch_norm", "relu", "conv", "add", "max_pool", "global_avg_pool", "flatten"],
        *["dense", "dense"],
    ]
    assert found.model.parameters == 6 * 27 + 6 + 12 + 36 + 60 + 10 + 40
    assert found.model.forward_flop == 2 * (16 * (6 * 27 + 36) + 60 + 40)
    assert layers[4].inputs == ("d", "n") and layers[-1].output_shape == (4,)


@pytest.mark.parametrize(
    ("weights", "nodes", "words"),
    [
        ({}, [node("Erf", "x", "e"), node("Softplus", "e", "y")], ["Erf (Erf of e)", "Softplus"]),
        ({"w": (4, 4)}, [node("Gemm", "x w", "y", alpha=2.0)], ["Gemm with alpha = 2.0"]),
        ({}, [node("Mul", "x c", "y")], ["Mul with a constant"]),
        ({"w": (4, 4), "more": (2,)}, [node("MatMul", "x w", "y")], ["16 parameters", "18"]),
    ],
)
def test_what_is_not_understood_is_named(tmp_path, weights, nodes, words):
    with pytest.raises(SpecError) as error:
        import_model(write(tmp_path / "net.onnx", (4,), weights, nodes))
    for word in words:
        assert word in str(error.value)


def test_a_file_that_is_no_onnx(tmp_path):
    (tmp_path / "net.onnx").write_text("none")
    for name in ("net.onnx", "missing.onnx"):
        with pytest.raises(SpecError, match="cannot be read as ONNX"):
            import_model(tmp_path / name)
