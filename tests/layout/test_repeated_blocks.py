"""Blocks that are split alike have the local layers that the rules give them one by one."""

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import tensor
from lib_dlhpc.layout.graph import made
from lib_dlhpc.layout.repeated_blocks import blocks
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.networks import build

SMALL = {"hidden": 64, "heads": 8, "sequence": 16, "vocabulary": 64}
NETWORKS = {
    "gpt": {"layers": 5, **SMALL},
    "experts": {"layers": 4, "experts": 8, "chosen": 2, **SMALL},
}
CATALOG = ("bert-base", "llama3.2-1b", "nemotron-h-8b", "dit-s2", "resnet50", "inception-v3")


def one_by_one(graph, rule):
    for home, layer in enumerate(graph.model.layers):
        rule(home, layer)


def network(name):
    return read_model(name) if name in CATALOG else build("gpt", NETWORKS[name])


def split(model, *how):
    """Return the graph of a rank, or why there is none."""
    try:
        return tensor.split_tensors.__wrapped__(model, *how)
    except SpecError as error:
        return str(error)


@pytest.mark.parametrize("name", [*NETWORKS, *CATALOG])
@pytest.mark.parametrize("how", ["paired", "row", "column"])
def test_a_repeated_block_is_what_the_rules_make_of_it(name, how, monkeypatch):
    model = network(name)
    cases = [(ranks, rank, how, by) for ranks, rank in ((2, 1), (3, 0)) for by in (False, True)]
    found = [split(model, *case) for case in cases]
    monkeypatch.setattr(tensor, "add_in_blocks", one_by_one)
    for case, graph in zip(cases, found, strict=True):
        expected = split(model, *case)
        if isinstance(expected, str):
            assert graph == expected
            continue
        assert [vars_of(each) for each in graph.layers] == [
            vars_of(each) for each in expected.layers
        ]
        assert graph.homes == expected.homes
        assert graph.held == expected.held
        assert graph.converted == expected.converted


def vars_of(layer):
    layer = made(layer)
    fields = {key: value for key, value in vars(layer).items() if key not in ("traits", "likeness")}
    return {**fields, "likeness": layer.likeness}


@pytest.mark.parametrize("name", ["gpt", "llama3.2-1b", "nemotron-h-8b"])
def test_most_blocks_of_a_deep_network_are_repeated(name, monkeypatch):
    model, seen = network(name), []
    rule = tensor._Splitter.add
    monkeypatch.setattr(
        tensor._Splitter,
        "add",
        lambda self, home, layer: (seen.append(home), rule(self, home, layer)),
    )
    split(model, 2, 0, "paired", False)
    assert sorted({*seen}) == sorted(seen)
    assert len(seen) < 0.8 * len(model.layers)
    inside = [block for block in blocks(model) if block.stop - block.start > 1]
    assert len({block.likeness for block in inside}) < len(inside)
