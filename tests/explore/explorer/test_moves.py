"""What a move sets beside its own field."""

import pytest

from lib_dlhpc.explore.explorer.axes import ALLREDUCE, axes_of
from lib_dlhpc.explore.explorer.choice import Choice, experiment_of
from lib_dlhpc.explore.explorer.controls import NAMED
from lib_dlhpc.explore.explorer.moves import moved
from lib_dlhpc.explore.explorer.presets import of_file, preset
from lib_dlhpc.spec.experiment import read_experiment

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
