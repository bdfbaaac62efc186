"""Runs in fp8 and nvfp4: quicker where products limit them, with messages and memory of bf16 but for stored inputs."""

import pytest

from lib_dlhpc import Experiment, SpecError, plan, simulate
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.no_effect import without_effect
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.check import check

LAYERS, TOKENS, HIDDEN, INNER, SAMPLES = 2, 4096, 4096, 11008, 2
LLAMA = {"name": "llama2-7b", "layers": LAYERS}
RUN = Experiment(
    model=LLAMA,
    machine="h100-pod",
    strategy={"nodes": 2, "batch": SAMPLES, "precision": "bf16", "optimizer": "adam"},
)
STATE = ("weights", "master weights", "gradients", "optimizer state", "input batch")
SPLITS = {
    "plain": {},
    "zero 3": {"zero": 3},
    "tensor": {"tensor": 4, "sequence_parallel": True},
    "pipeline": {"pipeline": 2, "batch": 16, "microbatches": 8, "schedule": "zb-h1"},
    "recompute": {"recompute": "full", "microbatches": 2},
    "adapters": {"lora": 8},
}


def with_(run, **strategy):
    return run.set({f"strategy.{name}": value for name, value in strategy.items()})


@pytest.mark.parametrize("name", SPLITS)
def test_a_step_takes_between_half_and_all_of_its_time_and_sends_the_same(name):
    wide = with_(RUN, **SPLITS[name])
    before, after = predict(wide), predict(with_(wide, precision="fp8"))
    for term in ("forward", "backward"):
        assert 0.5 * before.terms[term] < after.terms[term] < 0.85 * before.terms[term]
    assert 0.5 * before.step_time < after.step_time < before.step_time
    assert all(before.messages[x] == after.messages[x] for x in before.messages if x != "tensor")
    if name == "tensor":  # which gathers what is cast
        assert float(after.messages[name].total) < float(before.messages[name].total)
    assert sum(after.energy.values()) < sum(before.energy.values())
    assert after.experiment.model.train_flop == before.experiment.model.train_flop


@pytest.mark.parametrize("name", SPLITS)
def test_prediction_is_simulation(name):
    run = with_(RUN, **SPLITS[name], precision="fp8").set({"machine.jitter": 0.0})
    predicted, simulated = predict(run), breakdown(simulate(run))
    assert simulated.step_time == pytest.approx(float(predicted.step_time), rel=1e-9)


def test_a_step_in_nvfp4_by_hand():
    """Of 8 layers the last two are in bf16. All others store 9/16 B for each input, and go at four times the rate."""
    model = {**LLAMA, "layers": 8}
    base = Experiment(
        model=model, machine="gb200-nvl72", strategy={"batch": SAMPLES, "optimizer": "adam"}
    )
    wide, eight, four = (predict(with_(base, precision=p)) for p in ("bf16", "fp8", "nvfp4"))
    assert four.messages == eight.messages == wide.messages
    assert {name: four.memory[name] for name in STATE} == {
        name: wide.memory[name] for name in STATE
    }
    norms, gated, attended = 2 * HIDDEN, INNER, HIDDEN
    elements = SAMPLES * 6 * TOKENS * (norms + gated + attended)
    kept = 2 * SAMPLES * 6 * TOKENS * attended  # by attention, whose backward pass reads it
    saved = wide.memory["activations"] - four.memory["activations"]
    assert saved == (2 - 9 / 16) * elements - kept
    assert four.step_time < eight.step_time < wide.step_time
    inputs = {name: value for name, value, _ in explain(four)[0].inputs}
    assert inputs["peak rate, nvfp4"] == "10 PFLOP/s"
    linear = 2 * TOKENS * 6 * (4 * HIDDEN**2 + 3 * HIDDEN * INNER)
    assert inputs["FLOP in nvfp4"] == f"{linear / four.experiment.model.forward_flop:.1%}"


@pytest.mark.parametrize("name", SPLITS)
def test_prediction_in_nvfp4_is_simulation(name):
    run = with_(RUN.set({"machine.name": "gb300-nvl72"}), **SPLITS[name], precision="nvfp4")
    run = run.set({"machine.jitter": 0.0, "model.layers": 8})
    predicted, simulated = predict(run), breakdown(simulate(run))
    assert simulated.step_time == pytest.approx(float(predicted.step_time), rel=1e-9)


def test_the_ledger_by_hand():
    """Inputs of linear layers take a byte in place of two; attention's output, which it reads itself, one more."""
    before, after = (predict(with_(RUN, precision=p)).memory for p in ("bf16", "fp8"))
    assert {name: after[name] for name in STATE} == {name: before[name] for name in STATE}
    norms, gated, attended = 2 * HIDDEN, INNER, HIDDEN
    saved = SAMPLES * LAYERS * TOKENS * (norms + gated - attended)
    assert before["activations"] - after["activations"] == saved


def test_what_waits_for_weight_gradients_takes_half():
    """Of a zero-bubble pipeline: fp8 inputs, and the fp8 gradients of outputs."""
    wide = with_(RUN, **SPLITS["pipeline"])
    before, after = (predict(with_(wide, precision=p)).memory_total for p in ("bf16", "fp8"))
    assert 0.5 * before < after < before


def test_experts_store_what_their_products_read_in_fp8():
    run = with_(
        Experiment(model={"name": "mixtral-8x7b", "layers": 1}, machine="h100-pod"),
        precision="bf16",
        devices_per_node=1,
        batch=1,
        fused_attention="on",
    )
    before, after = (
        predict(with_(run, precision=p)).memory["activations"] for p in ("bf16", "fp8")
    )
    layer = next(x for x in run.model.layers if x.kind == "gated_experts")
    rows, inner = layer.attributes["routed"], layer.attributes["features"]
    width, tokens = layer.output_shape[-1], layer.output_shape[0]
    # The norm before queries is read in fp8 alone, that before experts by the router as well, attention's output twice.
    assert before - after == rows * (width + inner) + tokens * width - tokens * width


@pytest.mark.parametrize(
    ("machine", "legal"),
    [("selene", "fp64, fp32, tf32, fp16, bf16"), ("summit", "fp64, fp32, fp16")],
)
def test_devices_without_fp8_refuse_it_and_name_what_they_have(machine, legal):
    run = with_(Experiment(model="gpt-1536x16", machine=machine), precision="fp8")
    for verb in (predict, simulate):
        with pytest.raises(
            SpecError, match=rf"strategy.precision = 'fp8': .*; legal here: {legal}\. Devices"
        ):
            verb(run)


def test_the_last_blocks_in_bf16_cost_what_their_products_take():
    """Of 8 equal blocks the last two take as long as in bf16; no other layer changes."""
    run = with_(RUN.set({"machine.name": "gb200-nvl72"}), precision="nvfp4-all").set(
        {"model.layers": 8}
    )
    whole, some, wide = (predict(with_(run, precision=p)) for p in ("nvfp4-all", "nvfp4", "bf16"))
    for term in ("forward", "backward"):
        share = (some.terms[term] - whole.terms[term]) / (wide.terms[term] - whole.terms[term])
        assert share == pytest.approx(2 / 8, rel=1e-6)


def test_devices_without_nvfp4_name_those_that_have_it():
    run = with_(RUN, precision="nvfp4")
    with pytest.raises(
        SpecError, match=r"Devices that have it: b200-sxm-180gb, gb200-186gb, gb300-279gb\.$"
    ):
        predict(run)
    with pytest.raises(SpecError, match=r"'mxfp4'.*fp8, nvfp4"):
        with_(run, precision="mxfp4")


def test_the_trainer_refuses_it():
    with pytest.raises(
        SpecError, match=r"strategy\.precision = 'fp8'.* to train: fp64, fp32, fp16"
    ):
        check(with_(RUN, precision="fp8"))


def test_gradients_are_exchanged_in_bf16_unless_cast():
    narrow = with_(RUN, precision="fp8")
    sent = [predict(with_(narrow, wire=wire)) for wire in ("same", "bf16", "fp8", "fp32")]
    same, bf16, fp8, fp32 = (p.communication.total for p in sent)
    assert same == bf16 and fp8 < same < fp32
    assert any(
        "gradients of precision fp8" in note for note in without_effect(with_(narrow, wire="bf16"))
    )
    assert not without_effect(with_(narrow, wire="fp8"))


def test_convolutions_have_none_of_it():
    run = with_(Experiment(model="resnet50", machine="h100-pod"), precision="bf16")
    (note,) = without_effect(with_(run, precision="fp8"))
    assert "no linear layer except its last" in note
    before, after = predict(run), predict(with_(run, precision="fp8"))
    assert before.step_time == after.step_time and before.memory == after.memory


def test_a_plan_keeps_the_precision_of_the_file_where_no_other_was_measured():
    run, axes = with_(RUN, nodes=1), {"tensor": [1, 2], "microbatches": [1], "zero": [1]}
    found = plan(run, choose={"precision": ["bf16", "fp8"], **axes})
    assert {each.experiment.strategy.precision for each in found.ranked} == {"bf16"}
    assert any("precision = fp8: accuracy not assessed" in reason for reason in found.left_out)
    narrow = with_(run, precision="fp8")
    found = plan(narrow, choose=axes)
    assert {each.experiment.strategy.precision for each in found.ranked} == {"fp8"}
    with pytest.raises(SpecError, match="a100-sxm-80gb has no such peak; legal here"):
        plan(narrow.set({"machine.name": "selene"}), choose=axes)


def test_the_explanation_says_what_is_in_fp8():
    found = {each.name: each for each in explain(predict(with_(RUN, precision="fp8")))}
    inputs = {name: value for name, value, _ in found["compute"].inputs}
    linear = 2 * TOKENS * LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * INNER)
    share = linear / RUN.model.forward_flop
    assert inputs["peak rate, fp8"] == "1.98 PFLOP/s"
    assert inputs["peak rate of the others, bf16"] == "989 TFLOP/s"
    assert inputs["FLOP in fp8"] == f"{share:.1%}"
    assert "casts" in found["compute"].formula
    assert "stored in fp8" in found["memory of one device"].assumes
