"""What is said not to pay is slower than what is named in its place, by as much as is said."""

import re

import pytest

from lib_dlhpc import load
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.gains import without_gain
from lib_dlhpc.prediction.reports.report import as_dict, as_text

SMALL = load("llama3.2-1b@gb200-nvl72").set({"strategy.batch": 1, "model.sequence": 256})
STAGES = load("llama3-8b@h100-pod").set(
    {
        "strategy.nodes": 8,
        "strategy.pipeline": 8,
        "strategy.microbatches": 32,
        "strategy.precision": "bf16",
        "strategy.optimizer": "adam",
        "strategy.zero": 1,
    }
)
SEVERAL = {"strategy.nodes": 64, "strategy.tensor": 8}


@pytest.mark.parametrize(
    ("run", "changes", "better", "words"),
    [
        (SMALL, {"strategy.precision": "nvfp4"}, {"strategy.precision": "bf16"}, "casts take more"),
        (STAGES, {}, {"strategy.stage_cut": "work"}, "Stage 8 of 8 bounds the pipeline"),
        (
            STAGES,
            {**SEVERAL, "model.name": "llama3-70b", "strategy.stage_cut": "work"},
            {"strategy.stage_cut": "blocks"},
            "stage_cut = 'work' does not pay here",
        ),
    ],
)
def test_what_does_not_pay_is_slower_than_what_is_named(run, changes, better, words):
    own, other = (predict(run.set(each)) for each in (changes, changes | better))
    (note,) = without_gain(own)
    saved = 1 - float(other.step_time) / float(own.step_time)
    assert words in note and repr(next(iter(better.values()))) in note
    assert float(re.search(r"([\d.]+)% less", note)[1]) == pytest.approx(100 * saved, abs=0.06)
    assert f"  NOTE  {note}" in as_text(own) and note in as_dict(own)["notes"]
    assert not without_gain(other)


def test_what_pays_is_not_noted():
    for precision in ("bf16", "fp8", "nvfp4"):
        large = {"strategy.batch": 8, "model.sequence": 4096, "strategy.precision": precision}
        assert not without_gain(predict(SMALL.set(large)))


def test_what_loses_a_measured_rate_cannot_be_compared():
    measured = SMALL.set({"strategy.precision": "nvfp4"}).set({"calibration.rate": 100.0})
    assert not without_gain(predict(measured))
