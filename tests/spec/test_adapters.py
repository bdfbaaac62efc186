"""Adapters beside frozen weights: counts as published, arithmetic in closed form, and the network as it was without."""

from itertools import pairwise

import numpy as np
import pytest

from lib_dlhpc import Experiment, SpecError, loads
from lib_dlhpc.spec.experiment import dumps

GPT = {"family": "gpt", "layers": 2, "hidden": 32, "heads": 4, "sequence": 16, "vocabulary": 64}


def network(model, rank, **strategy):
    return experiment(model, rank, **strategy).model


def experiment(model, rank, dataset=None, **strategy):
    return Experiment(model, dataset, "h100-pod", {"lora": rank, **strategy})


@pytest.mark.parametrize(
    ("model", "rank", "trained"),
    [
        ("llama2-7b", 8, 4_194_304),  # as Hugging Face PEFT prints it
        ("gpt3-175b", 1, 4_718_592),  # 4.7 M in Hu et al. 2021, table 4
        ("gpt3-175b", 4, 18_874_368),
        ("llama3-8b", 16, 32 * 16 * (4096 + 4096 + 4096 + 1024)),  # grouped queries
    ],
)
def test_trained_parameters_are_the_published_ones(model, rank, trained):
    plain, found = network(model, 0), network(model, rank)
    assert found.trained == trained
    assert found.parameters == plain.parameters + trained
    assert plain.trained == plain.parameters


@pytest.mark.parametrize(("rank", "trained"), [(16, 39_976_960), (64, 159_907_840)])
def test_adapters_of_all_products_are_as_many_as_published(rank, trained):
    """Queries, keys, values, output, gate, up and down of the 7-billion Llama, as PEFT prints it; not the last."""
    found = network("llama2-7b", rank, adapted="all")
    assert found.trained == trained
    heads = [layer for layer in found.layers if layer.name.startswith(found.layers[-1].name)]
    assert len(heads) == 1 and heads[0].frozen


@pytest.mark.parametrize("adapted", ["queries_values", "all"])
@pytest.mark.parametrize("model", [GPT, "bert-base", "vit-b16", "mistral-7b"])
@pytest.mark.parametrize("fused", ["on", "off"])
def test_backward_makes_weight_gradients_of_adapters_only(model, fused, adapted):
    found = network(model, 4, fused_attention=fused, adapted=adapted)
    attends = sum(layer.forward_flop for layer in found.layers if "attention" in layer.kind)
    adapters = sum(layer.forward_flop for layer in found.layers if layer.trained)
    assert found.backward_flop == found.forward_flop + attends + adapters
    assert found.train_flop == pytest.approx(found.forward_flop + found.backward_flop, rel=1e-12)


def test_an_adapter_adds_products_of_its_rank():
    """2 (h r + r h) FLOP a token for queries, and as many for values."""
    plain, found = network(GPT, 0), network(GPT, 3)
    added = found.forward_flop - plain.forward_flop
    assert added == GPT["layers"] * GPT["sequence"] * 2 * (2 * 2 * 32 * 3)


def test_each_attention_reads_an_adapter_and_each_adapter_what_its_product_reads():
    found = network(GPT, 4)
    at = {layer.name: layer for layer in found.layers}
    seen = set()
    for attention in (layer for layer in found.layers if "attention" in layer.kind):
        adapter = at[attention.inputs[0]]
        product, down = (at[name] for name in adapter.inputs)
        assert (adapter.kind, product.kind, down.kind) == ("adapter", "dense", "dense")
        assert product.inputs == down.inputs
        assert product.frozen and not down.frozen and not adapter.frozen
        assert product.stored == 0 and adapter.stored == np.prod(adapter.output_shape)
        seen |= {adapter.name, down.name}
    assert {layer.name for layer in found.layers if layer.trained} == seen


def test_a_product_is_found_behind_normalized_heads():
    options = {"input": [16, 24], "layers": [{"kind": "dense", "features": 24}]}
    options["layers"] += [
        {"kind": "head_norm", "heads": 2, "kv_heads": 2},
        {"kind": "attention", "heads": 2},
    ]
    found = experiment({"family": "sequential", **options}, 2, "imagenet").model
    assert [layer.kind for layer in found.layers][:4] == ["dense", "dense", "adapter", "head_norm"]
    assert found.trained == 2 * (24 + 8) + 2 * (24 + 8)


def test_any_sequence_of_ranks_and_kernels_leaves_the_network_of_the_last():
    run = Experiment(model=GPT, machine="h100-pod")
    changes = [(8, "on"), (8, "off"), (2, "off"), (0, "on"), (2, "auto"), (0, "off")]
    for number, (rank, fused) in enumerate(changes):
        adapted = "queries_values" if number % 2 else "all"
        strategy = {"lora": rank, "fused_attention": fused, "adapted": adapted}
        new = {f"strategy.{name}": value for name, value in strategy.items()}
        run = run.set(new)
        assert run.model.layers == Experiment(GPT, None, "h100-pod", strategy).model.layers
        assert run.set(new).model is run.model
    for (one, _), (other, _) in pairwise(changes):
        assert (network(GPT, one) == network(GPT, other)) == (one == other)


def test_a_rank_survives_a_file():
    run = Experiment(model="llama2-7b", machine="h100-pod", strategy={"lora": 8})
    assert loads(dumps(run)) == run
    assert 'name = "llama2-7b"' in dumps(run)


@pytest.mark.parametrize(
    ("model", "rank", "words"),
    [
        ("resnet50", 8, "no attention"),
        ("mixtral-8x7b", 8, "gated_experts"),
        ("deepseek-v3", 8, "legal: 0"),
        (GPT, np.array([0, 8]), "one at a time"),
        (GPT, -1, "at least 0"),
    ],
)
def test_other_networks_are_refused(model, rank, words):
    with pytest.raises(SpecError, match=words) as error:
        network(model, rank)
    assert "strategy.lora" in str(error.value)
