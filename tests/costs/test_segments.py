"""Laws of segments: each layer in one at most, a segment is made again from one array, and all are alike."""

from dataclasses import replace
from math import prod, sqrt

import pytest
from split_runs import GPT, IMAGES, split

from lib_dlhpc.costs.segments import cut_points, segments
from lib_dlhpc.costs.stored_activations import stored_bytes
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import chain
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment, read_model
from lib_dlhpc.spec.model import Layer
from lib_dlhpc.spec.networks import build

each = pytest.mark.parametrize("name", catalog.names("models"))


@each
def test_segments_follow_one_another_and_read_what_was_made_before(name):
    model = read_model(name)
    assert segments(model, "none") == ()
    for recompute in ("selective", "full"):
        stop, made = 0, {"input"}
        for segment in segments(model, recompute):
            assert stop <= segment.first < segment.stop
            made |= {layer.name for layer in model.layers[stop : segment.first]}
            assert set(segment.reads) <= made
            latent = model.layers[segment.first].kind == "latent_attention"
            inside = model.layers[segment.first : segment.stop]
            # Blocks of diffusion networks read the vector of the sample too, and skip connections.
            vector = recompute == "full" and model.family in ("dit", "unet")
            skip = model.family == "unet" and any(each.kind == "concat" for each in inside)
            assert len(segment.reads) == (3 if latent else 1) + vector + skip
            stop = segment.stop
            made |= {layer.name for layer in model.layers[segment.first : stop]}


@each
def test_one_output_is_alive_at_a_cut_point_and_nowhere_else(name):
    model = read_model(name)
    places = {layer.name: index for index, layer in enumerate(model.layers)}
    alive = [0] * (len(model.layers) + 1)
    for maker, made in places.items():
        readers = [places[layer.name] for layer in model.layers if maker in layer.inputs]
        for place in range(made + 1, max(readers, default=made) + 1):
            alive[place] += 1
    assert cut_points(model) == tuple(p for p in range(1, len(model.layers)) if alive[p] == 1)


def test_a_transformer_is_cut_into_its_blocks():
    for name, blocks in [("gpt2-1.5b", 48), ("bert-large", 24)]:
        model = read_model(name)
        for number, segment in enumerate(segments(model, "full"), 1):
            inside = [layer.name for layer in model.layers[segment.first : segment.stop]]
            assert all(layer.startswith(f"layer{number}.") for layer in inside)
        assert number == blocks
        for segment in segments(model, "selective"):
            assert segment.stop == segment.first + 1
            assert model.layers[segment.first].kind == "attention"
        assert len(segments(model, "selective")) == blocks


@each
def test_other_networks_are_cut_into_about_a_root_of_equal_parts(name):
    model = read_model(name)
    if any("attention" in layer.kind for layer in model.layers):
        return
    found = segments(model, "full")
    assert segments(model, "selective") == ()
    assert [segment.first for segment in found[1:]] == [segment.stop for segment in found[:-1]]
    assert (found[0].first, found[-1].stop) == (0, len(model.layers))
    assert len(found) <= max(1, round(sqrt(len(cut_points(model)))))


def test_equal_layers_make_equal_segments():
    model = build("mlp", {"widths": [8] * 18, "activation": "tanh"})
    sizes = [segment.stop - segment.first for segment in segments(model, "full")]
    assert len(sizes) == round(sqrt(len(model.layers) - 1)) and max(sizes) - min(sizes) <= 2


def test_layers_of_other_stages_are_in_no_segment():
    model = read_model("gpt2-1.5b")
    at = next(i for i, layer in enumerate(model.layers) if layer.name.startswith("layer2."))
    before = model.layers[at - 1]
    received = Layer(before.name, "receive", (), before.output_shape, before.output_shape)
    table = replace(model.layers[0], kind="table", inputs=())
    part = replace(model, layers=(table, received, *model.layers[at:]))
    for recompute in ("selective", "full"):
        found = segments(part, recompute)
        assert len(found) == 47 and found[0].first >= 2
    assert segments(part, "full")[0].reads == (before.name,)
    mlp = build("mlp", {"widths": [8] * 18})
    middle = mlp.layers[9]
    received = Layer(middle.name, "receive", (), middle.output_shape, middle.output_shape)
    part = replace(mlp, layers=(received, *mlp.layers[10:]))
    assert segments(part, "full")[0].first == 1
    assert 1 not in cut_points(part)


def test_ranks_of_a_group_cut_alike_behind_a_received_part_of_uneven_width():
    """They talk within a segment, so one that is made again elsewhere would wait for ever."""
    from lib_dlhpc import layout

    run = Experiment(
        model={"family": "mlp", "widths": [64, 11, 9, 7, 10], "dropout": 0.2},
        dataset="digits",
        machine="laptop",
        strategy={
            "devices_per_node": 2,
            "tensor": 2,
            "split": "column",
            "chunks": 2,
            "schedule": "interleaved",
            "microbatches": 6,
            "recompute": "full",
        },
    )
    for first, second in zip(layout.parts(run, 0), layout.parts(run, 1), strict=True):
        assert segments(first.model, "full") == segments(second.model, "full")


@pytest.mark.parametrize("recompute", ["full", "early-stop"])
def test_a_stage_without_a_block_recomputes_nothing_of_a_network_of_blocks(recompute):
    """Megatron-LM and torchtitan wrap blocks, and neither an embedding nor the last product."""
    ways = {"pipeline": 4, "microbatches": 4, "recompute": recompute}
    stages = [part.model for (part,) in chain(split({**GPT, "layers": 2}, **ways))]
    blocks = [stage.has_blocks for stage in stages]
    assert 0 < sum(blocks) < 4
    assert [bool(segments(stage, recompute)) for stage in stages] == blocks
    stages = [part.model for (part,) in chain(split(IMAGES, **ways))]
    assert all(segments(stage, recompute) for stage in stages)


@pytest.mark.parametrize("recompute", ["full", "early-stop", "per-op"])
@pytest.mark.parametrize("name", ["gpt2-1.5b", "resnet18", "llama3-8b"])
@pytest.mark.parametrize("pipeline", [4, 64, 128])
def test_a_stage_stores_what_it_received_for_a_segment(pipeline, name, recompute):
    """Also within a residual branch, where only a sum reads it: to repeat the sum takes it."""
    ways = {"nodes": 16, "pipeline": pipeline, "recompute": recompute, "precision": "bf16"}
    try:
        held = chain(Experiment(model=name, machine="h100-pod", strategy=ways))
    except SpecError:
        assert name == "resnet18"  # it has fewer layers
        return
    for (part,) in held:
        read = {name for segment in segments(part.model, recompute) for name in segment.reads}
        received = [x for x in part.model.layers if x.kind == "receive" and x.name in read]
        elements = sum(prod(layer.output_shape) for layer in received)
        assert stored_bytes(part, 2, recompute) >= 2 * elements
