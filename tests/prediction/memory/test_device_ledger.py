"""Laws of the memory ledger: hand numbers, ZeRO's table, and walls that tell the truth."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import Experiment, loads
from lib_dlhpc.costs.checkpoints import checkpoint_bytes
from lib_dlhpc.costs.model_state import state_each
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.limits.exceeded_limits import largest_batch
from lib_dlhpc.prediction.memory.device_ledger import (
    attention_activation_saved,
    ledger,
    model_state_bytes,
)
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.strategy import OPTIMIZERS, TRAINING_PRECISIONS
from lib_dlhpc.spec.units import format_plain

RUN = Experiment(model="resnet50", dataset="imagenet", machine="dlperf-v100", strategy={"nodes": 2})
P = 25_557_032  # parameters of ResNet-50


def test_the_ledger_against_hand_numbers():
    found = ledger(RUN)
    assert found["weights"] == found["gradients"] == found["optimizer state"] == 4 * P
    assert found["master weights"] == 0
    assert found["input batch"] == 32 * 3 * 224 * 224 * 4
    assert found["activations"] == 32 * sum(brute_kept(RUN.model))
    assert found["communication buffer"] == 25e6
    assert found["driver and workspace"] == RUN.machine.device.reserved_memory
    assert 0 < found["working set"] < 32 * 3 * 256 * 56 * 56 * 4
    assert found["working set"] == 32 * brute_working_set(RUN.model)
    assert predict(RUN).memory_total == sum(found.values())


def test_an_mlp_by_hand():
    run = loads("""
        machine = "dlperf-v100"
        model = { family = "mlp", widths = [10, 20, 5] }
        dataset = { samples = 100, bytes = "1 kB" }
        strategy = { batch = 7, optimizer = "adam", precision = "fp16", devices_per_node = 1 }
    """)
    parameters = 10 * 20 + 20 + 20 * 5 + 5
    found = ledger(run)
    assert found["weights"] == found["gradients"] == 2 * parameters
    assert found["master weights"] == 4 * parameters
    assert found["optimizer state"] == 8 * parameters
    assert found["input batch"] == 7 * 10 * 2
    assert found["communication buffer"] == 0  # one device


@pytest.mark.parametrize("precision", TRAINING_PRECISIONS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_model_states_are_the_same_in_ledger_table_and_checkpoint(precision, optimizer):
    run = RUN.set({"strategy.precision": precision, "strategy.optimizer": optimizer})
    found = ledger(run)
    states = ("weights", "master weights", "gradients", "optimizer state")
    total = sum(found[name] for name in states)
    each = state_each(run.model, optimizer)  # Muon's depends on the tensors
    assert model_state_bytes(P, precision, optimizer, numbers=each) == pytest.approx(
        total, rel=1e-12
    )
    if optimizer != "muon":
        assert model_state_bytes(P, precision, optimizer) == total
    size = checkpoint_bytes(run.model, precision, optimizer)
    assert size == pytest.approx(total - found["gradients"], rel=1e-12)


def test_zero_figure_1():
    """Rajbhandari et al. 2020: 7.5e9 parameters, 64 devices, Adam in mixed precision."""
    sizes = [model_state_bytes(7.5e9, "fp16", "adam", 64, stage) / 1e9 for stage in range(4)]
    assert sizes == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


@given(st.integers(1, 1024), st.sampled_from(["fp16", "fp32"]), st.sampled_from(OPTIMIZERS))
def test_every_stage_of_zero_frees_memory_and_all_of_it_is_one_share(shards, precision, optimizer):
    sizes = [model_state_bytes(1e9, precision, optimizer, shards, stage) for stage in range(4)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[3] == pytest.approx(sizes[0] / shards)


def test_selective_recomputation_of_gpt3():
    """Korthikanti et al. 2022, section 5: 5 a s / h is 80 for GPT-3, of 114."""
    assert attention_activation_saved(96, 2048, 12288) == 80 / 114


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_a_bigger_batch_needs_more(a, b):
    small, big = sorted((a, b))
    one = predict(RUN.set({"strategy.batch": small})).memory
    more = predict(RUN.set({"strategy.batch": big})).memory
    assert all(more[name] >= one[name] for name in one)
    if big > small:
        assert sum(more.values()) > sum(one.values())


@pytest.mark.parametrize("name", catalog.names("models"))
def test_no_term_is_negative_and_half_precision_needs_no_more_activations(name):
    full = ledger(RUN.set({"model.name": name}))
    half = ledger(RUN.set({"model.name": name, "strategy.precision": "fp16"}))
    assert all(value >= 0 for value in full.values())
    assert half["activations"] <= full["activations"]
    assert half["input batch"] == full["input batch"] / 2


# --- walls ---


def test_resnet50_keeps_what_pytorch_keeps():
    """Measured: the storage behind all tensors that torch 2.13 saves for backward, ReLU and sums in place.

    It is 85.52 MB a sample, of which 1.61 MB are places of the maxima that a pool notes down as 64 bits.
    """
    stored = ledger(RUN)["activations"] / 32 - RUN.model.mask_bytes
    assert stored == pytest.approx(85.52e6 - 1.61e6, rel=0.005)


def test_resnet50_in_fp32_on_16_gb_fits_with_128():
    """Six of seven frameworks of the DLPerf report trained with 128 on such a device."""
    assert RUN.machine.device.memory < 17.5e9
    assert predict(RUN.set({"strategy.batch": 128})).walls == []
    assert not predict(RUN.set({"strategy.batch": 192})).fits


def brute_kept(model):
    """Walk through the layers: the bytes each keeps, a sum being written over one of its inputs."""
    readers = {layer.name: set() for layer in model.layers} | {"input": set()}
    for layer in model.layers:
        for name in layer.inputs:
            readers[name].add(layer.kind)
    return [
        0
        if readers[layer.name] == {"add"} and layer.kind not in HOLD
        else 4 * layer.stored + layer.mask_bytes
        for layer in model.layers
    ]


HOLD = ("relu", "max_pool", "tanh", "sigmoid", "gelu", "dropout", "attention", "lstm", "softmax")
IN_PLACE = ("relu", "tanh", "sigmoid", "gelu", "dropout")


def brute_working_set(model):
    """Walk backward, layer by layer: what is kept so far, the gradients in and out, and those that wait."""
    size = {layer.name: 4 * int(np.prod(layer.output_shape)) for layer in model.layers}
    kept = brute_kept(model)
    # Outputs of which some reader has been backward, and which are not through.
    peak, begun = (0, set())
    for number in reversed(range(len(model.layers))):
        layer = model.layers[number]
        begun.discard(layer.name)
        gradients = max(size[layer.name], 4 * layer.stored)
        gradients += sum(size[name] for name in begun - {*layer.inputs})
        if layer.kind not in IN_PLACE:
            gradients += sum(size[name] for name in layer.inputs if name != "input")
        if layer.kind not in ("flatten", "reshape"):
            own = kept[number] if layer.kind in HOLD else 0
            peak = max(peak, sum(kept[:number]) + own + gradients)
        begun |= {name for name in layer.inputs if name != "input"}
    return max(0, peak - sum(kept))


@pytest.mark.parametrize(
    "entry", ["resnet50", "lenet5", "vgg16", "bert-base", "gpt2-1.5b", "mlp-mnist", "frnn"]
)
def test_the_working_set_is_the_worst_moment_of_a_walk(entry):
    run = RUN.set({"model.name": entry})
    assert ledger(run)["working set"] == 32 * brute_working_set(run.model)


@pytest.mark.parametrize(
    "model",
    ["resnet50", "resnet152", "vgg16", "bert-base", "gpt2-1.5b", "gpt3-175b", "cosmoflow-512"],
)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_batch_that_the_wall_names_fits_and_one_more_does_not(model, precision):
    run = RUN.set({"model.name": model, "strategy.precision": precision, "strategy.batch": 100_000})
    prediction = predict(run)
    (wall,) = prediction.walls
    most = largest_batch(prediction)
    over = prediction.memory_total / run.machine.device.memory - 1
    assert (
        f"{over:.0%} too much" if over < 9 else f"{format_plain(over + 1)} times too much"
    ) in wall
    if most:
        assert int(re.search(r"fits is (\d+)\.$", wall)[1]) == most
        assert predict(run.set({"strategy.batch": most})).fits
    else:
        assert "not even one sample fits" in wall
    assert not predict(run.set({"strategy.batch": most + 1})).fits


@given(st.integers(1, 2000), st.floats(5e9, 5e11))
def test_the_largest_batch_does_not_depend_on_the_one_asked_about(batch, memory):
    run = RUN.set({"machine.device.memory": memory, "strategy.batch": batch})
    most = largest_batch(predict(run))
    for near in (most, most + 1):
        if near:
            assert predict(run.set({"strategy.batch": near})).fits == (near == most)


def test_the_data_set_must_fit_its_tier():
    name = next(iter(RUN.machine.storage))
    run = RUN.set(
        {"storage.tier": name, f"machine.storage.{name}.capacity": "70 GB", "strategy.nodes": 1}
    )
    (wall,) = predict(run).walls
    assert "140 GB" in wall and "70 GB" in wall and "100% too much" in wall and name in wall
    if run.machine.storage[name].scope == "node":
        assert "over 2 nodes" in wall
        two = run.set({"strategy.nodes": 2})
        assert predict(two).walls == [wall]  # each draws from all of it
        spread = {"storage.access": "cooperative", "storage.local": name}
        assert predict(two.set(spread)).walls == []
    roomy = run.set({f"machine.storage.{name}.capacity": "140 GB"})
    assert predict(roomy).walls == []


def test_two_walls_are_two_sentences():
    name = next(iter(RUN.machine.storage))
    run = RUN.set({"storage.tier": name, f"machine.storage.{name}.capacity": 1.0})
    run = run.set({"strategy.batch": 192})
    assert [wall.split(":")[0] for wall in predict(run).walls] == ["Memory", "Storage"]


def test_arrays_of_batches_give_arrays_of_bytes():
    batches = np.array([[1, 2], [64, 192]])
    whole = predict(RUN.set({"strategy.batch": batches}))
    assert whole.memory_total.shape == (2, 2)
    assert whole.fits.tolist() == [[True, True], [True, False]]
