"""What is said to have no effect has none, and what has one is not said to have none."""

import pytest

from lib_dlhpc import Experiment, loads
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.no_effect import without_effect
from lib_dlhpc.prediction.reports.report import as_dict, as_text

RUN = Experiment(
    model={
        "family": "gpt",
        "layers": 8,
        "hidden": 256,
        "heads": 8,
        "sequence": 64,
        "vocabulary": 64,
    },
    dataset="words",
    machine="h100-pod",
    strategy={"nodes": 2, "batch": 64, "microbatches": 8, "fused_attention": "off"},
)
PIPE = {"strategy.pipeline": 4}
ONE = {"strategy.data": 1, "strategy.tensor": 8, "strategy.pipeline": 2}
WHOLE = {"strategy.nodes": 1, "strategy.devices_per_node": 1}
FUSED = {"strategy.fused_attention": "on"}
LSTM = {"model.name": "lstm-lm"}
VOID = [
    ({}, {"strategy.schedule": "gpipe"}, "keep more microbatches"),
    ({"strategy.microbatches": 1}, {"strategy.schedule": "gpipe"}, "no pipeline to order."),
    ({}, {"strategy.schedule": "interleaved", "strategy.chunks": 2}, "no pipeline to order"),
    (PIPE, {"strategy.schedule": "interleaved"}, "nothing to interleave"),
    (ONE, {"strategy.zero": 1}, "there is only one"),
    *(
        ({**WHOLE, "strategy.batch": 8}, {"strategy.zero": z}, "there is only one")
        for z in (1, 2, 3)
    ),
    ({}, {"strategy.split": "row"}, "no layer is split"),
    ({}, {"strategy.pipeline_runtime": "pytorch"}, "there is no pipeline"),
    ({}, {"strategy.stage_cut": "work"}, "there is no pipeline to cut"),
    ({"strategy.tensor": 2}, {"strategy.tensor_overlap": "async-tp"}, "nothing is cut"),
    ({}, {"strategy.offload_to": "nvme"}, "nothing is offloaded"),
    (FUSED, {"strategy.recompute": "selective"}, "fused and stores no scores"),
    (LSTM, {"strategy.fused_attention": "on"}, "the network has no attention"),
    ({"model.name": "resnet50"}, {"strategy.loss": "separate"}, "no 32-bit logits"),
    ({}, {"strategy.adapted": "all"}, "there are no adapters"),
    ({}, {"strategy.expert_imbalance": 2.0}, "experts are not split over ranks"),
    (
        {"strategy.tensor": 8},
        {"strategy.expert_imbalance": 2.0},
        "experts are not split over ranks",
    ),
]
REAL = [
    (PIPE, {"strategy.schedule": "gpipe"}),
    (PIPE, {"strategy.pipeline_runtime": "pytorch"}),
    (PIPE, {"strategy.schedule": "interleaved", "strategy.chunks": 2}),
    ({}, {"strategy.zero": 1}),
    ({"strategy.tensor": 8}, {"strategy.split": "row"}),
    ({}, {"strategy.recompute": "selective"}),
    ({}, FUSED),
    ({}, {"strategy.precision": "fp8"}),
    ({"strategy.lora": 4}, {"strategy.adapted": "all"}),
]


def numbers(run):
    result = as_dict(predict(run))
    return {name: result[name] for name in ("step_time", "terms", "memory", "messages", "exposed")}


@pytest.mark.parametrize(("base", "change", "words"), VOID)
def test_what_has_no_effect_is_reported_and_changes_nothing(base, change, words):
    tier = next(iter(RUN.machine.storage))
    change = {key: tier if value == "nvme" else value for key, value in change.items()}
    run, without = RUN.set({**base, **change}), RUN.set(base)
    (note,) = without_effect(run)
    assert words in note and f"  NOTE  {note}" in as_text(predict(run))
    assert as_dict(predict(run))["notes"] == [note] and not without_effect(without)
    mine, theirs = predict(run), predict(without)
    assert mine.pipeline_bubble == pytest.approx(theirs.pipeline_bubble)
    assert mine.step_time >= theirs.step_time * (1 - 1e-12)
    if "keep" in note:
        assert mine.memory_total > theirs.memory_total
    else:
        assert numbers(run) == numbers(without)


def test_samples_of_another_length_than_the_models_are_reported():
    (note,) = without_effect(run := RUN.set({"dataset.sample_shape": [48]}))
    assert "sample_shape = [48]: each sample has the 64 tokens of the model's sequence" in note
    assert predict(run).step_time == predict(RUN).step_time


@pytest.mark.parametrize(("base", "change"), REAL)
def test_what_has_an_effect_is_not_said_to_have_none(base, change):
    run, without = RUN.set({**base, **change}), RUN.set(base)
    assert not without_effect(run)
    assert numbers(run) != numbers(without)


@pytest.mark.parametrize(
    ("model", "tensor", "words"),
    [("mixtral-8x7b", 16, "has 8 experts"), ("gpt2-1.5b", 32, "has 25 heads")],
)
def test_ranks_beyond_the_heads_or_experts_are_reported(model, tensor, words):
    run = loads(f'model = "{model}"\ndataset = "imagenet"\nmachine = "gb200-nvl72"\n')
    nodes = tensor // int(run.devices_per_node)
    (note,) = without_effect(run.set({"strategy.nodes": nodes, "strategy.tensor": tensor}))
    assert words in note and f"strategy.tensor = {tensor}" in note
    few = {"strategy.nodes": nodes, "strategy.tensor": 8}
    assert not any("each rank holds" in note for note in without_effect(run.set(few)))


@pytest.mark.parametrize("change", [{"fused_attention": "on"}, {"recompute": "selective"}])
def test_latent_attention_is_attention(change):
    run = loads('model = "deepseek-v3"\ndataset = "imagenet"\nmachine = "h100-pod"\n')
    changes = {f"strategy.{name}": value for name, value in change.items()}
    assert not any("no attention" in note for note in without_effect(run.set(changes)))


def test_no_attention_is_made_again_where_there_is_none():
    run = loads('model = "resnet50"\ndataset = "imagenet"\nmachine = "h100-pod"\n')
    (note,) = without_effect(run.set({"strategy.recompute": "selective"}))
    assert "no attention" in note
