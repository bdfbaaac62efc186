"""What a move sets beside its own field."""

import pytest

from lib_dlhpc.explore.explorer.choice import Choice, experiment_of
from lib_dlhpc.explore.explorer.controls import NAMED
from lib_dlhpc.explore.explorer.moves import moved
from lib_dlhpc.explore.explorer.presets import of_file
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
