"""Linear layers in fp8: which they are, and that the network is otherwise the same."""

from dataclasses import replace

import pytest

from lib_dlhpc import Experiment
from lib_dlhpc.layout import parts
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.fp8 import with_fp8

NETWORKS = catalog.names("models")


def narrow(name, block=""):
    """Return the last parts of the names of layers in fp8, in one block or in all of a network."""
    layers = with_fp8(read_model(name), True).layers
    return [x.name.rpartition(".")[2] for x in layers if x.fp8 and x.name.startswith(block)]


@pytest.mark.parametrize("name", NETWORKS)
def test_only_linear_layers_change_and_all_change_back(name):
    model = read_model(name)
    found = with_fp8(model, True)
    assert [replace(layer, fp8=False) for layer in found.layers] == list(model.layers)
    assert {x.kind for x in found.layers if x.fp8} <= {
        "dense",
        "experts",
        "gated_experts",
        "squared_relu_experts",
    }
    assert with_fp8(found, True) is found and with_fp8(model, False) is model
    assert with_fp8(found, False) == model
    linear = [layer for layer in model.layers if any(layer.traits.operands(layer))]
    assert not linear or not next(x for x in found.layers if x.name == linear[-1].name).fp8


def test_projections_and_feed_forward_are_in_fp8_and_attention_embeddings_and_logits_are_not():
    assert narrow("gpt3-175b", "layer1.") == ["qkv", "projection", "expand", "contract"]
    assert len(narrow("gpt3-175b")) == 4 * 96
    llama = narrow("llama3-405b")
    assert len(llama) % 126 == 0 and "logits" not in llama and "attention" not in llama


def test_experts_are_in_fp8_and_their_router_is_not():
    layers = with_fp8(read_model("deepseek-v3"), True).layers
    routers = [layer for layer in layers if layer.name.endswith("router")]
    experts = [layer for layer in layers if layer.kind == "gated_experts"]
    assert len(routers) == len(experts) == 58
    assert all(layer.fp8 for layer in experts) and not any(layer.fp8 for layer in routers)


def test_adapters_are_not():
    tuned = {"precision": "fp8", "lora": 8, "adapted": "all"}
    run = Experiment(model="llama2-7b", machine="h100-pod", strategy=tuned)
    assert all(
        layer.fp8 != layer.name.endswith("_down")
        for layer in run.model.layers[:-1]
        if layer.kind == "dense"
    )
    plain = run.set({"strategy.precision": "bf16"})
    assert not any(layer.fp8 for layer in plain.model.layers)
    assert run.set({"strategy.lora": 0}).model == run.set({"strategy.lora": 0}).model


@pytest.mark.parametrize(
    "split", [{"tensor": 2}, {"context": 2}, {"pipeline": 2, "batch": 8, "microbatches": 4}]
)
def test_parts_of_layers_stay_in_fp8(split):
    run = Experiment(
        model="gpt-1536x16", machine="h100-pod", strategy={"precision": "fp8", **split}
    )
    whole = {layer.name for layer in run.model.layers if layer.fp8}
    last = {
        layer.name
        for rank in (0, 4)
        for part in parts(run, rank)
        for layer in part.model.layers
        if layer.fp8
    }
    first = {layer.name for part in parts(run, 1) for layer in part.model.layers if layer.fp8}
    assert whole and last | first <= whole
    assert whole == last or "pipeline" in split
