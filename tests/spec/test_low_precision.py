"""Linear layers in fp8 and nvfp4: which they are, and that the network is otherwise the same."""

from dataclasses import replace

import pytest

from lib_dlhpc import Experiment
from lib_dlhpc.layout import parts
from lib_dlhpc.layout.stages import stage_ends
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.low_precision import with_narrow
from lib_dlhpc.spec.strategy import NARROW

NETWORKS = catalog.names("models")


def narrow(name, block=""):
    """Return the last parts of the names of layers in fp8, in one block or in all of a network."""
    layers = with_narrow(read_model(name), "fp8").layers
    return [x.name.rpartition(".")[2] for x in layers if x.narrow and x.name.startswith(block)]


@pytest.mark.parametrize("form", NARROW)
@pytest.mark.parametrize("name", NETWORKS)
def test_only_linear_layers_change_and_all_change_back(name, form):
    model = read_model(name)
    found = with_narrow(model, form)
    assert [replace(layer, narrow="") for layer in found.layers] == list(model.layers)
    assert {x.kind for x in found.layers if x.narrow} <= {
        "dense",
        "experts",
        "gated_experts",
        "squared_relu_experts",
    }
    assert with_narrow(found, form) is found and with_narrow(model, "bf16") is model
    assert with_narrow(found, "bf16") == model
    linear = [layer for layer in model.layers if any(layer.traits.operands(layer))]
    assert not linear or not next(x for x in found.layers if x.name == linear[-1].name).narrow


def test_projections_and_feed_forward_are_in_fp8_and_attention_embeddings_and_logits_are_not():
    assert narrow("gpt3-175b", "layer1.") == ["qkv", "projection", "expand", "contract"]
    assert len(narrow("gpt3-175b")) == 4 * 96
    llama = narrow("llama3-405b")
    assert len(llama) % 126 == 0 and "logits" not in llama and "attention" not in llama


@pytest.mark.parametrize(
    ("name", "blocks", "wide"),
    [("nemotron-h-8b", 52, 8), ("llama3-405b", 126, 19), ("deepseek-v3", 61, 10)],
)
def test_in_nvfp4_the_last_blocks_are_wide(name, blocks, wide):
    """As of the 8B model in section 5 of arXiv:2509.25149, whose last 8 blocks of 52 are in bf16."""
    model = read_model(name)
    eight, four, whole = (with_narrow(model, form).layers for form in NARROW)
    assert [bool(x.narrow) for x in whole] == [bool(x.narrow) for x in eight]
    assert {x.narrow for x in four} == {"", "nvfp4"}
    lost = {
        x.name.partition(".")[0]
        for x, y in zip(eight, four, strict=True)
        if x.narrow and not y.narrow
    }
    assert lost == {f"layer{number}" for number in range(blocks - wide + 1, blocks + 1)}
    assert not any(x.narrow for x in four if x.name.partition(".")[0] in lost)


def test_stages_are_cut_alike_in_all_formats():
    run = Experiment(model="llama3-8b", machine="gb200-nvl72", strategy={"pipeline": 4})
    runs = [run.set({"strategy.precision": each}) for each in ("bf16", *NARROW)]
    assert len({stage_ends(each) for each in runs}) == 1


def test_experts_are_in_fp8_and_their_router_is_not():
    layers = with_narrow(read_model("deepseek-v3"), "fp8").layers
    routers = [layer for layer in layers if layer.name.endswith("router")]
    experts = [layer for layer in layers if layer.kind == "gated_experts"]
    assert len(routers) == len(experts) == 58
    assert all(layer.narrow for layer in experts) and not any(layer.narrow for layer in routers)


def test_adapters_are_not():
    tuned = {"precision": "fp8", "lora": 8, "adapted": "all"}
    run = Experiment(model="llama2-7b", machine="h100-pod", strategy=tuned)
    assert all(
        bool(layer.narrow) != layer.name.endswith("_down")
        for layer in run.model.layers[:-1]
        if layer.kind == "dense"
    )
    plain = run.set({"strategy.precision": "bf16"})
    assert not any(layer.narrow for layer in plain.model.layers)
    assert run.set({"strategy.lora": 0}).model == run.set({"strategy.lora": 0}).model


@pytest.mark.parametrize(
    "split", [{"tensor": 2}, {"context": 2}, {"pipeline": 2, "batch": 8, "microbatches": 4}]
)
def test_parts_of_layers_stay_in_fp8(split):
    run = Experiment(
        model="gpt-1536x16", machine="h100-pod", strategy={"precision": "fp8", **split}
    )
    whole = {layer.name for layer in run.model.layers if layer.narrow}
    last = {
        layer.name
        for rank in (0, 4)
        for part in parts(run, rank)
        for layer in part.model.layers
        if layer.narrow
    }
    first = {layer.name for part in parts(run, 1) for layer in part.model.layers if layer.narrow}
    assert whole and last | first <= whole
    assert whole == last or "pipeline" in split
