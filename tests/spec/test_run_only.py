"""Run-only settings: each is declared beside its field, and named where a run has it off its default."""

import dataclasses

import pytest

from lib_dlhpc import Experiment
from lib_dlhpc.comparison.placed import placed
from lib_dlhpc.comparison.text import title
from lib_dlhpc.spec.run_only import TABLES, notes, run_only, unpriced, warnings
from lib_dlhpc.spec.schema import LEARNING

RUN = Experiment(
    model="mlp-digits", dataset="digits", machine="laptop", strategy={"devices_per_node": 1}
)
# A value off the default of each run-only field.
OFF = {
    "training.rate": 0.3,
    "training.base_batch": 32,
    "training.warm_up": 2.0,
    "training.decay": "cosine",
    "training.steps_at": 7.0,
    "training.momentum": 0.5,
    "training.weight_decay": 1e-4,
    "training.trust": 0.01,
    "training.normalization": "global",
    "training.loss_scale": 64.0,
    "training.sparsity_warm_up": 1.0,
    "training.shift": 2,
    "training.collective": "mpi",
}
TIMED = {"sparsity_warm_up", "shift", "collective", "normalization"}


def declared():
    return {
        f"{table}.{item.name}"
        for table in TABLES
        for item in dataclasses.fields(getattr(RUN, table))
        if item.metadata.get("run_only") is not None
    }


def test_every_run_only_field_is_tried_below():
    assert declared() == set(OFF)


def test_defaults_are_not_named():
    assert run_only(RUN) == {} == unpriced(RUN) and notes(RUN) == []


@pytest.mark.parametrize("key", OFF)
def test_one_that_is_set_is_named_with_its_value(key):
    run = RUN.set({key: OFF[key]})
    (said,) = notes(run)
    (name,) = run_only(run)
    assert name.startswith(f"{key} = ") and name in said
    assert said in placed(run).notes
    timed = key.rpartition(".")[2] in TIMED
    assert (warnings(run) == [said]) is timed
    assert (run_only(run)[name] == LEARNING) is not timed


def test_the_effect_of_a_choice_on_time_depends_on_its_value():
    assert not unpriced(RUN.set({"training.decay": "step"}))
    assert unpriced(RUN.set({"training.decay": "growth"}))


def test_the_term_that_is_off_most_is_not_blamed_on_the_link(digits_steps=12):
    from dataclasses import replace

    from lib_dlhpc.comparison.comparison import beside, estimated
    from lib_dlhpc.comparison.steady import steps_of
    from lib_dlhpc.simulation import simulate

    run = RUN.set(
        {"strategy.devices_per_node": 2, "machine.intra_node.bandwidth": 1e6, "machine.jitter": 0.0}
    )
    timeline = simulate(run, steps=digits_steps)
    half = replace(timeline, start=timeline.start / 3, stop=timeline.stop / 3)
    blamed = {}
    for shift in (0, 2):
        expected = estimated(placed(run.set({"training.shift": shift})))
        assert "mlp-digits" in title(beside(expected, [steps_of(half)]))
        blamed[shift] = " ".join(beside(expected, [steps_of(half)]).verdict)
    assert (
        "Largest error: exposed communication" in blamed[0]
        and "the link's latency and bandwidth" in blamed[0]
    )
    assert "the link's latency" not in blamed[2]
    assert "does not model training.shift = 2" in blamed[2]
