"""What a move sets beside its own field."""

from contextlib import suppress
from math import prod

import pytest
from advised import advise

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.address import decode, encode
from lib_dlhpc.explore.explorer.axes import ALLREDUCE, axes_of
from lib_dlhpc.explore.explorer.choice import Choice, History, experiment_of, read, written
from lib_dlhpc.explore.explorer.controls import NAMED, standing
from lib_dlhpc.explore.explorer.moves import consequences, moved, moved_again
from lib_dlhpc.explore.explorer.presets import names, of_file, preset
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.advice import moves
from lib_dlhpc.prediction.changes.resplit import DEGREES
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment, read_experiment, read_model

START = {
    "model": "gpt-1536x16",
    "dataset": "webtext",
    "machine": "h100-pod",
    "strategy": {"precision": "fp8"},
}


@pytest.mark.parametrize(
    ("machine", "nearest"), [("selene", "bf16"), ("summit", "fp16"), ("bigbasin", "fp16")]
)
def test_a_machine_without_fp8_takes_the_nearest_precision_and_says_so(machine, nearest):
    choice = Choice(of_file(read_experiment(START)))
    assert ("fp8", "fp8") in NAMED["strategy.precision"].options(experiment_of(choice))
    further, _, words = moved(choice, "machine.name", machine)
    e = experiment_of(further)
    assert e.strategy.precision == nearest and f"precision {nearest}" in words
    assert ("fp8", "fp8") not in NAMED["strategy.precision"].options(e)


@pytest.mark.parametrize("name", catalog.names("models"))
def test_a_language_model_is_trained_with_adam(name):
    changes = consequences(read_experiment(START), "model.name", name)
    if read_model(name).reads_tokens:
        assert changes["strategy.optimizer"] == "adam"


def test_microbatches_from_both_ends_are_set_with_what_they_need_and_left_where_they_cannot_be():
    choice, _, words = moved(Choice(preset("narayanan-2021")), "strategy.offload", "activations")
    choice, _, words = moved(choice, "strategy.schedule", "dualpipe")
    s = experiment_of(choice).strategy
    assert s.schedule == "dualpipe" and s.offload == "none" and "offload" in words
    assert s.microbatches % 2 == 0 and s.microbatches >= 2 * s.pipeline
    assert s.batch % s.microbatches == 0
    left = 0
    for field in ("pipeline", "microbatches", "batch", "tensor", "offload"):
        key = f"strategy.{field}"
        for _, value in NAMED[key].options(experiment_of(choice)):
            now = experiment_of(moved(choice, key, value)[0]).strategy
            assert getattr(now, field) == value
            left += now.schedule != "dualpipe"
    assert left


def test_an_allreduce_in_switches_is_offered_where_they_add_and_left_with_the_machine():
    own = {"name": "summit", "in_network": "sharp"}
    plain = {"model": "resnet50", "dataset": "imagenet", "strategy": {"nodes": 2}}
    choice = Choice(of_file(read_experiment({**plain, "machine": own})))
    choice, _, _ = moved(choice, "strategy.allreduce", "sharp")
    further, _, words = moved(choice, "machine.name", "selene")
    assert experiment_of(further).strategy.allreduce == "auto" and "allreduce auto" in words
    both = [experiment_of(each) for each in (choice, further)]
    offered = [{name for _, name in NAMED["strategy.allreduce"].options(e)} for e in both]
    swept = [
        {v for axis in axes_of(e) if axis.field == ALLREDUCE for v in axis.values} for e in both
    ]
    assert offered == swept and offered[0] - offered[1] == {"sharp"}


DEEPSEEK = "deepseek-v3-2048-h800"
TOKENS = ("strategy.expert_exchange", "strategy.expert_wire")


def tokens_of(choice):
    """Return how tokens travel to experts."""
    s = experiment_of(choice).strategy
    return s.expert_exchange, s.expert_wire


@pytest.mark.parametrize(
    ("changes", "folded"),
    [
        ({}, ()),
        ({"strategy.experts": 8}, ()),  # all in one node
        ({"strategy.experts": 1}, TOKENS),
        ({"strategy.precision": "bf16"}, TOKENS[1:]),
        ({"strategy.devices_per_node": 4}, ()),
        ({"model.experts.groups": 1, "model.experts.chosen_groups": 0}, ()),
        ({"model.experts.groups": 256, "model.experts.chosen_groups": 0}, ()),
        (
            {
                f"model.experts.{key}": n
                for key, n in (("experts", 192), ("groups", 3), ("chosen_groups", 0))
            },
            TOKENS[:1],  # on 64 devices
        ),
    ],
)
def test_how_tokens_travel_is_folded_away_with_a_reason_where_it_cannot_matter(changes, folded):
    plain = {"strategy.expert_exchange": "direct", "strategy.expert_wire": "same"}
    e = preset(DEEPSEEK).experiment.set({**plain, **changes})
    for field in TOKENS:
        assert bool(NAMED[field].off(e)) == (field in folded), field
        assert not NAMED[field].off(e) or "experts" in NAMED[field].off(e)
    without = preset("narayanan-2021").experiment
    assert all(NAMED[field].off(without) for field in TOKENS)
    assert not NAMED["strategy.experts"].off(e)  # of a decoder, too


@pytest.mark.parametrize("field", [*TOKENS, "strategy.recompute"])
def test_each_value_of_how_tokens_travel_and_of_light_moves_the_step(field):
    choice = Choice(preset(DEEPSEEK))
    now = predict(experiment_of(choice))
    for _, value in NAMED[field].options(experiment_of(choice)):
        further, there, words = moved(choice, field, value)
        same = value == now.experiment.strategy.__dict__[field.partition(".")[2]]
        changed = float(there.step_time) != float(now.step_time) or there.memory != now.memory
        assert changed != same and words == ""
        again, pinned, ignored = read(decode(encode(written(further))).fields)
        assert experiment_of(again) == experiment_of(further) and not pinned and not ignored
    assert "light" in dict(NAMED["strategy.recompute"].options(experiment_of(choice)))


@pytest.mark.parametrize(
    ("field", "value", "left"),
    [
        ("strategy.precision", "bf16", ("by-node", "same")),
        ("strategy.experts", 1, ("direct", "same")),
        ("strategy.experts", 16, ("by-node", "fp8")),
        ("strategy.experts", 4, ("by-node", "fp8")),
        ("strategy.wire", "bf16", ("direct", "same")),
        ("model.name", "mixtral-8x7b", ("direct", "same")),
        ("model.name", "llama3-8b", ("direct", "same")),
        ("machine.name", "selene", ("by-node", "same")),  # no fp8
        ("machine.name", "summit", ("direct", "same")),  # nodes of six
    ],
)
def test_how_tokens_travel_goes_where_it_cannot_stay(field, value, left):
    choice = Choice(preset(DEEPSEEK))
    assert tokens_of(choice) == ("by-node", "fp8")
    further, _, words = moved(choice, field, value)
    assert tokens_of(further) == left
    assert ("expert exchange direct" in words) == (left[0] == "direct")
    assert ("tokens sent in same" in words) == (left[1] == "same")


def test_tensor_parallelism_sends_a_copy_to_each_expert_again():
    run = Experiment(
        model="qwen3-30b-a3b",
        dataset="webtext",
        machine="h100-pod",
        strategy={"nodes": 4, "experts": 8, "devices_per_node": 4},
    )
    by_node, _, _ = moved(Choice(of_file(run)), "strategy.expert_exchange", "by-node")
    further, _, words = moved(by_node, "strategy.tensor", 2)
    assert "expert exchange direct" in words and experiment_of(further).strategy.tensor == 2
    assert experiment_of(further).strategy.experts == 8


@pytest.mark.parametrize("name", names())
def test_every_split_that_a_click_gives_in_the_same_global_batch_is_priced_by_the_advice(name):
    e = preset(name).experiment
    priced = [changes for _, changes in moves(e)]
    for field in ("strategy.tensor", "strategy.pipeline"):
        for label, to in NAMED[field].options(e):
            changes = {field: to, **consequences(e, field, to)}
            replica = prod(changes[key] for key in DEGREES)
            batch = changes["strategy.batch"] * int(e.devices) // replica
            now = getattr(e.strategy, field.removeprefix("strategy."))
            if to == now or batch != e.global_batch or "strategy.lora" in changes or to & (to - 1):
                continue
            assert changes in priced, (field, label)


def test_the_advice_knows_that_tensor_parallelism_with_more_microbatches_is_faster():
    """At twice the tensor degree a replica has twice the microbatches, however small the degree is."""
    split = {"tensor": 1, "zero": 2, "batch": 12, "microbatches": 12, "overlap": True}
    e = preset("narayanan-2021").experiment.set({f"strategy.{k}": v for k, v in split.items()})
    now, advice = predict(e), advise(predict(e))
    tensor, many = (advice.changes[f"strategy.{name}"] for name in ("tensor", "microbatches"))
    assert tensor > 1 and many == 12 * tensor
    saved = 1 - float(predict(e.set(advice.changes)).time_to_train) / float(now.time_to_train)
    assert saved > 0.1


@pytest.mark.parametrize("name", names())
def test_a_control_that_returns_brings_back_all_that_it_set(name):
    """Its moves leave no trace, in whatever order: nor in the batch, the microbatches or the schedule."""
    start = Choice(preset(name))
    e = experiment_of(start)
    for field, control in NAMED.items():
        if control.group not in ("Split", "Batch and optimizer") or control.off(e):
            continue
        history = History(start)
        at = standing(e, field)
        values = [value for _, value in control.options(e) if value != at]
        for value in [*values[:2], *values[-1:], at]:
            with suppress(SpecError):
                history.choose(moved_again(history, field, value)[0], [field])
        assert history.now == start, (field, values)


def test_of_several_moves_of_a_control_the_last_counts_and_moves_of_others_stay():
    start = Choice(preset("goyal-2017"))
    history = History(start)
    for stages in (8, 2):
        further = moved_again(history, "strategy.pipeline", stages)[0]
        history.choose(further, ["strategy.pipeline"])
    assert history.now == moved(start, "strategy.pipeline", 2)[0]
    assert history.now.changes["strategy.microbatches"] == 8  # four for each of two stages
    history.choose(moved_again(history, "strategy.zero", 1)[0], ["strategy.zero"])
    history.choose(moved_again(history, "strategy.pipeline", 1)[0], ["strategy.pipeline"])
    assert history.now.changes["strategy.zero"] == 1


def test_a_split_that_cannot_keep_the_global_batch_says_why():
    one = {"tensor": 8, "pipeline": 1, "batch": 1, "microbatches": 1}
    gpt = preset("narayanan-2021").experiment.set({f"strategy.{k}": v for k, v in one.items()})
    _, p, words = moved(Choice(of_file(gpt)), "strategy.tensor", 1)
    assert int(p.experiment.global_batch) == 1024
    assert words.endswith(
        "The global batch cannot stay 128 (for 1,024 replicas that is no whole number of samples): it is 1,024 now."
    )
    _, p, words = moved(Choice(preset("narayanan-2021")), "strategy.tensor", 4)
    assert int(p.experiment.global_batch) == 1536 and "global batch" not in words
