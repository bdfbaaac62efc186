"""Laws of recomputation that stops early: what backward reads is there, and the end of a block is not repeated."""

import pytest
from split_runs import GPT, split

from lib_dlhpc.costs.segments import segments
from lib_dlhpc.costs.stored_activations import reads_input, reads_output, stored_bytes
from lib_dlhpc.layout import chain, parts
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.limits.fit import ways_to_fit
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment, read_model

LLAMA = {
    "family": "llama",
    "layers": 2,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 2,
    "feed_forward": 96,
    "sequence": 32,
    "vocabulary": 128,
}


@pytest.mark.parametrize("name", catalog.names("models"))
def test_a_segment_ends_with_an_output_that_backward_reads(name):
    """What is left out has no mask, and is read by nothing within the segment whose backward pass reads its input."""
    layers = read_model(name).layers
    for segment in segments(read_model(name), "early-stop"):
        inside = range(segment.first, segment.stop)
        end = segment.first + len(segment.repeated)
        assert segment.repeated == tuple(range(segment.first, end))
        for at in range(end, segment.stop):
            readers = [layers[x] for x in inside if layers[at].name in layers[x].inputs]
            assert not reads_output(layers[at]) and not layers[at].mask_bytes
            assert not any(reads_input(reader) for reader in readers)


@pytest.mark.parametrize("tensor", [1, 2])
def test_the_last_matmul_and_its_message_are_not_repeated(tensor):
    run = split(LLAMA, recompute="early-stop", tensor=tensor, precision="bf16")
    layers = parts(run, 0)[0].model.layers
    full, early = (segments(parts(run, 0)[0].model, way) for way in ("full", "early-stop"))
    for whole, part in zip(full, early, strict=True):
        left = [layers[at] for at in whole.repeated[len(part.repeated) :]]
        assert sum(layer.traits.product for layer in left) == 1
        assert sum(layer.kind == "exchange" for layer in left) == (tensor > 1)


def test_dropout_at_the_end_of_a_block_needs_all_before_its_mask():
    model = split({**GPT, "dropout": 0.1}).model
    for segment in segments(model, "early-stop"):
        assert model.layers[segment.repeated[-1]].kind == "dropout"


def test_it_stores_what_full_recomputation_stores_in_less_time():
    full, early = (split(LLAMA, recompute=way, precision="bf16") for way in ("full", "early-stop"))
    stored = [stored_bytes(parts(run, 0)[0], 2, run.strategy.recompute) for run in (full, early)]
    assert stored[0] == stored[1]
    assert 0 < predict(early).recomputation < predict(full).recomputation


def test_stages_are_cut_as_with_full_recomputation():
    """Activations of no stage are held, so all fit: there is no reason to cut unequal stages."""
    big = {
        "family": "gpt",
        "layers": 16,
        "hidden": 4096,
        "heads": 32,
        "sequence": 2048,
        "vocabulary": 32000,
    }
    own = {
        "devices_per_node": 8,
        "pipeline": 4,
        "microbatches": 16,
        "zero": 1,
        "fused_attention": "off",
    }
    own |= {"batch": 16, "precision": "bf16", "optimizer": "adam"}
    device = {"name": "selene", "device": {"memory": 28e9}}
    cuts = [
        [len(part.model.layers) for held in chain(run) for part in held]
        for how in ("full", "early-stop")
        for run in [Experiment(model=big, machine=device, strategy={**own, "recompute": how})]
    ]
    assert cuts[0] == cuts[1]


def test_full_recomputation_is_no_way_to_fit():
    run = split(LLAMA, recompute="early-stop", precision="bf16")
    assert all("strategy.recompute" not in way.changes for way in ways_to_fit(run))
