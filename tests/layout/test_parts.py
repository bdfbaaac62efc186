"""The parts of all ranks together are the network: nothing is missing, nothing is there twice."""

from dataclasses import replace
from itertools import pairwise
from math import prod

import pytest

from lib_dlhpc import layout
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout.cuts import even, length
from lib_dlhpc.layout.spatial import split_space
from lib_dlhpc.spec.experiment import Experiment

COMMUNICATES = ("exchange", "halo", "receive", "table")


def split(model, dataset="imagenet", **strategy):
    devices = strategy.get("data", 1)
    for name in ("tensor", "pipeline", "spatial"):
        devices *= strategy.get(name, 1)
    strategy = {"batch": 8, "nodes": devices, "devices_per_node": 1} | strategy
    return Experiment(
        model=model,
        dataset={"name": dataset},
        machine={"name": "h100-pod", "nodes": 4096},
        strategy=strategy,
    )


def replica(run):
    """The parts of all ranks that hold one copy of the network."""
    size = layout.sizes(run)
    return {
        (p, s, t): layout.parts(run, layout.rank_at(run, layout.Place(p, 0, s, t)))
        for p in range(size.pipeline)
        for s in range(size.spatial)
        for t in range(size.tensor)
    }


GPT = {"family": "gpt", "layers": 3, "hidden": 24, "heads": 6, "sequence": 11, "vocabulary": 50}
SPLITS = [
    ({"name": "vgg16"}, {"tensor": 3, "split": "column"}),
    ({"name": "vgg16"}, {"tensor": 3, "split": "row"}),
    ({"name": "resnet50"}, {"tensor": 4}),
    ({"name": "resnet50"}, {"spatial": 5}),
    ({"name": "cosmoflow-128"}, {"spatial": 3, "pipeline": 2}),
    ({"name": "lenet5"}, {"pipeline": 4}),
    (GPT, {"tensor": 4}),
    (GPT, {"tensor": 4, "sequence_parallel": True, "pipeline": 3}),
    (GPT, {"pipeline": 2, "chunks": 2, "schedule": "interleaved", "microbatches": 4}),
]


def over_ranks(run, count):
    """A count of each layer of the network, summed over the ranks of a replica."""
    found = dict.fromkeys((layer.name for layer in run.model.layers), 0)
    for parts in replica(run).values():
        for layer in (layer for part in parts for layer in part.model.layers):
            if layer.kind not in COMMUNICATES:
                found[layer.name] += getattr(layer, count)
    return found


@pytest.mark.parametrize(("model", "strategy"), SPLITS)
def test_each_weight_is_held_once_a_group_or_whole(model, strategy):
    run = split(model, **strategy)
    whole = {layer.name: layer for layer in run.model.layers}
    held = over_ranks(run, "parameters")
    ranks = layout.sizes(run).tensor * layout.sizes(run).spatial
    for name, layer in whole.items():
        assert held[name] in (layer.parameters, layer.parameters * ranks), name


@pytest.mark.parametrize(("model", "strategy"), SPLITS)
def test_arithmetic_is_shared_out(model, strategy):
    """What all ranks compute is what one does, and more only of layers that all of them have whole."""
    run = split(model, **strategy)
    whole = {layer.name: layer.forward_flop for layer in run.model.layers}
    done = over_ranks(run, "forward_flop")
    ranks = layout.sizes(run).tensor * layout.sizes(run).spatial
    for name, flop in whole.items():
        assert done[name] == pytest.approx(flop) or done[name] == pytest.approx(flop * ranks), name


@pytest.mark.parametrize(("model", "strategy"), SPLITS)
def test_shapes_follow_from_one_another(model, strategy):
    for parts in replica(split(model, **strategy)).values():
        for part in parts:
            shapes = {"input": part.model.input_shape}
            for layer in part.model.layers:
                for name in layer.inputs:
                    assert name in shapes, f"{layer.name} reads {name}, which is not there"
                if layer.inputs:
                    assert layer.input_shape == shapes[layer.inputs[0]], layer.name
                shapes[layer.name] = layer.output_shape


@pytest.mark.parametrize(("model", "strategy"), SPLITS)
def test_what_a_stage_sends_the_next_receives(model, strategy):
    run = split(model, **strategy)
    size, ranks = layout.sizes(run), replica(run)
    for s in range(size.spatial):
        for t in range(size.tensor):
            every = sorted(
                (part for p in range(size.pipeline) for part in ranks[p, s, t]),
                key=lambda part: part.stage,
            )
            assert [part.stage for part in every] == list(range(len(every)))
            assert every[0].receives == () and every[-1].sends == ()
            for before, after in pairwise(every):
                assert before.sends == after.receives
                assert before.elements(before.sends) == after.elements(after.receives) > 0


def test_parts_of_an_output_follow_one_another():
    run = split({"name": "vgg16"}, tensor=3)
    every = [layout.parts(run, rank)[0].model for rank in range(3)]
    for layers in zip(*(model.layers for model in every), strict=True):
        elements = [layer.attributes.get("elements") for layer in layers]
        if elements[0] is None:
            assert elements == [None] * 3
            continue
        axis = elements[0][0]
        whole = layers[0].attributes["whole"].output_shape[axis]
        edges = [edge for _, (each,) in elements for edge in each]
        assert edges[0] == 0 and edges[-1] == whole
        assert edges[1:-1:2] == edges[2:-1:2], layers[0].name


def test_halo_is_what_the_windows_read():
    """3 x 3 windows read a row on either side, and none beyond the edge of a padded image is anyone's."""
    run = split({"name": "vgg16"}, spatial=3)
    for rank in range(3):
        halo = next(
            x for x in layout.parts(run, rank)[0].model.layers if x.name == "stage1.conv2.halo"
        )
        assert halo.attributes["owned"] == ((0, 75), (75, 150), (150, 224))
        assert halo.attributes["needed"] == ((-1, 76), (74, 151), (149, 225))


def test_a_word_table_on_two_stages_is_reported():
    run = split(GPT, pipeline=3)
    first, middle, last = (layout.parts(run, rank)[0] for rank in range(3))
    assert first.shared == last.shared == {"words": (0, 2)} and middle.shared == {}
    table = last.model.layers[0]
    assert (table.name, table.kind, table.parameters) == ("words", "table", 50 * 24)


def test_words_that_the_next_stage_receives_are_on_one_stage():
    words = {
        "family": "llama",
        "layers": 2,
        "hidden": 8,
        "heads": 4,
        "kv_heads": 2,
        "feed_forward": 10,
    }
    run = split(words | {"sequence": 16, "vocabulary": 11}, pipeline=4)
    first, second = (layout.parts(run, rank)[0] for rank in range(2))
    assert [layer.name for layer in first.model.layers] == ["words"]
    assert second.model.layers[0].kind == "receive" and first.shared == second.shared == {}


def test_stages_are_balanced():
    """24 equal blocks over 6 stages: 4 each, and what comes before and after them where there is room."""
    run = split(
        {"family": "gpt", "layers": 24, "hidden": 64, "heads": 4, "vocabulary": 8}, pipeline=6
    )
    assert blocks_of_stages(run) == [4] * 6


def blocks_of_stages(run):
    """The number of blocks of each stage."""
    starts = (0, *layout.stage_ends(run))
    names = [layer.name.partition(".")[0] * ("." in layer.name) for layer in run.model.layers]
    return [len({*names[a:b]} - {""}) for a, b in pairwise(starts)]


LARGE_VOCABULARY = {"family": "gpt", "layers": 12, "hidden": 64, "heads": 4, "vocabulary": 5000}


def test_stages_have_equally_many_blocks_where_all_are_alike_and_else_equal_work():
    assert blocks_of_stages(split(LARGE_VOCABULARY, pipeline=4)) == [3, 3, 3, 3]
    chunks = {"schedule": "interleaved", "chunks": 2, "microbatches": 8}
    assert blocks_of_stages(split(LARGE_VOCABULARY, pipeline=2, **chunks)) == [3, 3, 3, 3]
    # The logits are worth several blocks, so that the last stage has the fewest.
    uneven = blocks_of_stages(split(LARGE_VOCABULARY, pipeline=5))
    assert sum(uneven) == 12 and uneven[-1] < min(uneven[:-1])


def test_stages_cut_by_work_have_fewer_blocks_beside_the_logits():
    run = split(LARGE_VOCABULARY, pipeline=4, microbatches=8)
    by_work = run.set({"strategy.stage_cut": "work"})
    *others, last = blocks_of_stages(by_work)
    assert sum(others) + last == 12 and last < 3 <= min(others)
    assert layout.stage_cut(by_work) == layout.stage_ends(by_work) != layout.stage_cut(run)


def test_equal_blocks_give_way_to_memory():
    run = split(LARGE_VOCABULARY, pipeline=2, batch=64, microbatches=2)
    assert blocks_of_stages(run) == [6, 6]
    tight = {"machine.device.memory": 3.0e8, "machine.device.reserved_memory": 0.0}
    assert blocks_of_stages(run.set(tight)) != [6, 6]


def test_memory_moves_the_cut():
    """The quickest cut gives a stage more than fits: it is cut where all stages fit."""
    model = {"name": "vgg16"}
    roomy = split(model, pipeline=4, batch=64, microbatches=8)
    ends = layout.stage_ends(roomy)
    tight = roomy.set({"machine.device.memory": 2.0e9, "machine.device.reserved_memory": 0.0})
    moved = layout.stage_ends(tight)
    assert moved != ends


def test_ranks_of_a_group_differ_in_one_place():
    run = split(GPT, tensor=2, pipeline=3, data=2)
    for rank in range(12):
        assert layout.rank_at(run, layout.place(run, rank)) == rank
        for kind in ("tensor", "data", "pipeline"):
            members = layout.group(run, rank, kind)
            assert rank in members and len(members) == getattr(layout.sizes(run), kind)
            assert {b - a for a, b in pairwise(members)} == {layout.stride(run, kind)}


def test_logits_stay_where_they_are_made():
    """Ranks that each make some logits exchange two numbers a position for the loss, and never gather them."""
    for sequence in (False, True):
        run = split(GPT, tensor=4, sequence_parallel=sequence, pipeline=3)
        ends = [
            layout.parts(run, layout.rank_at(run, layout.Place(2, 0, 0, t)))[-1] for t in range(4)
        ]
        last = [part.model.layers[-1] for part in ends]
        assert {layer.attributes["forward"] for layer in last} == {"log_softmax"}
        assert [layer.output_shape for layer in last] == [(11, 13), (11, 13), (11, 12), (11, 12)]
    classes = split({"name": "vgg16"}, tensor=4, split="column")
    assert layout.parts(classes, 0)[-1].model.layers[-1].output_shape == (1000,)


def test_parts_of_a_range_are_even():
    for extent in range(20):
        for ranks in range(1, 8):
            parts = even(extent, ranks)
            sizes = [length((part,)) for part in parts]
            assert sum(sizes) == extent and max(sizes) - min(sizes) <= 1
            assert all(a[1] == b[0] for a, b in pairwise(parts))


@pytest.mark.parametrize(
    ("model", "strategy", "said"),
    [
        ({"name": "mlp-digits"}, {"spatial": 2}, r"strategy\.spatial = 2.*rows"),
        ({"name": "lenet5"}, {"spatial": 30}, r"strategy\.spatial = 30"),
        ({"name": "lenet5"}, {"tensor": 200}, r"strategy\.tensor = 200.*no layer"),
        ({"name": "lenet5"}, {"pipeline": 100}, r"100 stages.*layers"),
        ({"name": "lenet5"}, {"tensor": 2, "spatial": 2}, "not both"),
    ],
)
def test_what_cannot_be_split_is_reported(model, strategy, said):
    with pytest.raises(SpecError, match=said):
        layout.parts(split(model, **strategy), 0)


def test_heads_of_keys_and_values_are_split_in_whole_groups():
    model = {"family": "llama", "layers": 1, "hidden": 24, "heads": 12, "kv_heads": 3}
    model |= {"feed_forward": 16, "sequence": 4, "vocabulary": 8}
    seen = []
    for rank in range(2):
        run = split(model, "words", tensor=2, devices_per_node=2, nodes=1)
        layers = {x.name: x for x in layout.parts(run, rank)[0].model.layers}
        attends, qkv = layers["layer1.attention"], layers["layer1.qkv"]
        seen.append((attends.attributes["heads"], attends.attributes["kv_heads"]))
        ((axis, ranges),) = (qkv.attributes["part"][name] for name in ("weight",))
        assert axis == 1 and qkv.output_shape[-1] == sum(stop - start for start, stop in ranges)
        assert attends.output_shape[-1] == 2 * attends.attributes["heads"]
        # Queries, keys and values of a head of two features: 24, then 6 and 6.
        assert ranges == [((0, 16), (24, 28), (30, 34)), ((16, 24), (28, 30), (34, 36))][rank]
    assert seen == [(8, 2), (4, 1)]
    with pytest.raises(SpecError, match=r"tensor = 4.*3 heads of keys.*legal: 1 to 3"):
        layout.parts(split(model, "words", tensor=4), 0)


def test_memory_of_activations_is_what_korthikanti_count():
    """Table 2: bytes of a transformer layer, sbh (10 + 24/t + 5as/ht), in fp16 with dropout."""
    s, h, a = 64, 48, 6
    model = {"family": "gpt", "layers": 4, "hidden": h, "heads": a, "sequence": s, "vocabulary": 96}
    for t in (1, 2, 3, 6):
        run = split(model, tensor=t, fused_attention="off")
        layers = layout.parts(run, 0)[0].model.layers
        block = [x for x in layers if x.name.startswith("layer2.")]
        found = sum(2 * x.stored + x.mask_bytes for x in block)
        assert found == pytest.approx(s * h * (10 + 24 / t + 5 * a * s / h / t), rel=1e-12)
        assert prod(block[-1].output_shape) == s * h


def test_layers_that_are_alike_are_split_as_if_none_were():
    """Each is split as the first of its kind: so is a network in which none is like another."""
    model = split({"name": "resnet50"}).model
    letters = str.maketrans("0123456789", "abcdefghij")
    called = {
        "input": "input",
        **{each.name: each.name.translate(letters) for each in model.layers},
    }
    unlike = tuple(
        replace(each, name=called[each.name], inputs=tuple(called[name] for name in each.inputs))
        for each in model.layers
    )
    for rank in (0, 1, 3):
        one, other = (split_space(m, 4, rank) for m in (model, replace(model, layers=unlike)))
        assert one.homes == other.homes
        for a, b in zip(one.layers, other.layers, strict=True):
            same = {"name": b.name, "inputs": b.inputs}
            if "whole" in a.attributes:
                same["attributes"] = {**a.attributes, "whole": b.attributes["whole"]}
            assert replace(a, **same) == b and a.name.translate(letters) == b.name
            assert tuple(name.translate(letters) for name in a.inputs) == b.inputs
            assert replace(a).likeness == a.likeness
