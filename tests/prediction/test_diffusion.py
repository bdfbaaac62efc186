"""Diffusion networks in the engines: the memory ledger by hand, splits, and the same step predicted and simulated."""

import json
from math import prod

import pytest
from split_runs import split

from lib_dlhpc.cli import main
from lib_dlhpc.layout import parts, stage_ends
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import breakdown

DIT = {"family": "dit", "layers": 4, "hidden": 64, "heads": 4, "latent": 8, "classes": 10}
UNET = {"family": "unet", "image": 16, "channels": 32, "widths": [1, 2], "attention": [8]}
SEQUENCE = {"tensor": 2, "sequence_parallel": True}


def test_activations_of_dit_by_hand():
    depth, h, a, n, f, outputs = 4, 64, 4, 16, 256, 2 * 2**2 * 4
    norms, adds, gelu = 4 * n * h, 2 * n * h, 8 * n * h
    attention = 3 * n * h + a * n**2 + n * h  # queries, keys, values; softmax; result
    gated = 2 * n * h  # what the two gates multiply
    block = norms + adds + gelu + attention + gated + 7 * h  # SiLU of the condition, and 6 vectors
    ends = f + 3 * h + n * h + 3 * h + 2 * n * h + n * outputs
    run = split(DIT, batch=3, precision="bf16")
    assert predict(run).memory["activations"] == 3 * 2 * (depth * block + ends)


def test_recomputation_of_dit_stores_the_inputs_of_blocks():
    run = split(DIT, batch=1, precision="fp32", recompute="full")
    n_h, h = 16 * 64, 64
    ends = 256 + 3 * h + n_h + 3 * h + 2 * n_h + 16 * 32
    assert predict(run).memory["activations"] == 4 * (4 * n_h + ends)


def test_recomputation_keeps_the_skip_connections_of_a_u_net():
    run = split(UNET, batch=1, precision="fp32", recompute="full")
    outputs = {layer.name: prod(layer.output_shape) for layer in run.model.layers}
    crossing = {layer.inputs[1] for layer in run.model.layers if layer.kind == "concat"}
    kept = predict(run).memory["activations"]
    stored = predict(run.set({"strategy.recompute": "none"})).memory["activations"]
    assert 4 * sum(outputs[name] for name in crossing) < kept
    assert kept < stored / 2


def test_a_stage_of_a_u_net_sends_the_skip_connections_that_later_stages_read():
    run = split(UNET, pipeline=2, microbatches=4)
    first, last = (parts(run, rank)[0] for rank in (0, 1))
    read = {name for layer in last.model.layers for name in layer.inputs}
    made = {layer.name for layer in first.model.layers}
    assert set(first.sends) == set(last.receives) == read & made
    crossing = {layer.inputs[1] for layer in last.model.layers if layer.kind == "concat"} & made
    assert len(crossing) > 1
    assert crossing | {"timestep_mix"} <= set(first.sends)


@pytest.mark.parametrize(("stages", "blocks"), [(2, [2, 2]), (3, [2, 1, 1]), (4, [1, 1, 1, 1])])
def test_stages_of_dit_are_whole_blocks(stages, blocks):
    run = split(DIT, pipeline=stages, microbatches=4)
    ends = stage_ends(run)
    names = [
        {
            layer.name.partition(".")[0]
            for layer in run.model.layers[first:stop]
            if "." in layer.name
        }
        for first, stop in zip((0, *ends), ends, strict=False)
    ]
    assert sorted(map(len, names)) == sorted(blocks)
    assert sum(map(len, names)) == len(set().union(*names))


def test_sequence_parallel_ranks_modulate_their_positions_by_the_whole_vector():
    run = split(DIT, **SEQUENCE)
    layers = {layer.name: layer for layer in parts(run, 1)[0].model.layers}
    for name in ("layer2.modulate1", "layer2.gate1"):
        x, vector = (layers[each].output_shape for each in layers[name].inputs)
        assert x == layers[name].output_shape == (8, 64)
        assert vector == (6 * 64,)
    gathered = layers[layers["layer2.modulate1"].inputs[1]]
    ways = gathered.attributes["forward"], gathered.attributes["backward"]
    assert ways == ("all_gather", "reduce_scatter")  # each rank has the gradient of its positions


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        (DIT, {"data": 4, "zero": 3}),
        (DIT, SEQUENCE | {"pipeline": 2, "microbatches": 4}),
        (DIT, {"tensor": 2, "recompute": "full"}),
        (UNET, {"data": 2, "tensor": 2}),
        (UNET, {"pipeline": 2, "microbatches": 4, "recompute": "full"}),
    ],
)
def test_the_prediction_is_the_simulation(model, strategy):
    run = split(model, **strategy)
    predicted, simulated = predict(run), breakdown(simulate(run))
    assert simulated.step_time == pytest.approx(float(predicted.step_time), rel=1e-9)


def test_a_model_of_the_catalog_is_predicted(tmp_path, capsys):
    file = tmp_path / "dit.toml"
    file.write_text(
        'model = "dit-xl2"\ndataset = "imagenet"\nmachine = "h100-pod"\n[strategy]\nnodes = 4\nprecision = "bf16"\n'
    )
    assert main(["predict", "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["step_time"] > 0


def test_the_run_that_limits_compares_is_predicted_so(repository):
    text = (repository / "docs" / "limits.md").read_text("utf-8")
    run = Experiment(
        model="dit-xl2",
        dataset="imagenet",
        machine={"name": "h100-pod", "device": "a100-sxm-80gb"},
        strategy={
            "nodes": 1,
            "devices_per_node": 1,
            "batch": 128,
            "optimizer": "adam",
            "precision": "fp16",
            "recompute": "full",
        },
    )
    found = predict(run)
    assert f"The prediction is {1 / float(found.step_time):.2f} steps/s" in text
    assert f"{found.memory_total / 1e9:.1f} GB." in text
