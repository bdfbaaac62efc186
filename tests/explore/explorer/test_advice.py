"""A click on Apply gives what the advice promises, with the page's own settings; nothing that was tried is better."""

import re

import pytest
from advised import advise

from lib_dlhpc.convergence.assessment import changed
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.explorer.choice import Choice, experiment_of
from lib_dlhpc.explore.explorer.presets import names, preset
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes import advice as module
from lib_dlhpc.prediction.changes.advice import WORTH, endless, fits, held, moves, run_time
from lib_dlhpc.prediction.limits.exceeded_limits import stopping
from lib_dlhpc.spec.units import format_quantity

GPT, LLAMA, GOYAL, YOU = "narayanan-2021", "llama3-405b", "goyal-2017", "you-2018"
SLOW, FAST, NARROW = {"times.latency": 8}, {"times.rate": 8}, {"times.bandwidth": 1 / 8}


def split(tensor, pipeline, batch, microbatches, **more):
    """Return the fields of a split."""
    fields = {"tensor": tensor, "pipeline": pipeline, "batch": batch, "microbatches": microbatches}
    return {f"strategy.{name}": value for name, value in (fields | more).items()}


CASES = [
    *((name, {}) for name in names()),
    *((name, NARROW) for name in (GOYAL, YOU, "mikami-2018", "cosmoflow-2018", LLAMA)),
    *((GPT, factor) for factor in (NARROW, SLOW, FAST)),
    (GPT, split(1, 64, 96, 96)),
    (GPT, split(2, 32, 96, 96)),
    (GPT, split(8, 1, 12, 12)),
    (GPT, split(16, 8, 192, 192)),
    (GPT, split(8, 8, 96, 96, recompute="none")),
    (GPT, split(8, 8, 96, 7)),
    (GPT, split(1, 1, 12, 12, zero=2)),
    (GPT, split(2, 1, 24, 24, nodes=16, recompute="none")),
    (GPT, {"strategy.offload": "activations", "strategy.recompute": "none"}),
    (GPT, {"machine.node_mtbf": 3e9}),
    (LLAMA, {"strategy.tensor": 4}),
    (GOYAL, {**NARROW, "strategy.recompute": "full"}),
    (GOYAL, split(1, 4, 128, 16)),
    (GOYAL, {"strategy.batch": 33, "strategy.overlap": False}),
    (YOU, {"storage.tier": "lustre"}),
    ("laptop", {"strategy.batch": 7}),
    ("deepseek-v3-2048-h800", {"strategy.recompute": "none"}),
]


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_apply_gives_what_the_advice_promises_and_no_candidate_is_faster(
    name, changes, monkeypatch
):
    choice = Choice(preset(name)).with_changes(changes)
    priced = {}

    def once(experiment):
        """Predict an experiment; that of the same object is known already."""
        _, there = priced.get(id(experiment), (None, None))
        there = there or predict(experiment)
        priced[id(experiment)] = experiment, there
        return there

    @tried_once
    def applied(more):
        return experiment_of(choice.with_changes(more))

    monkeypatch.setattr(module, "predict", once)
    now = predict(experiment_of(choice))
    advice = advise(now, applied)
    best = best_of(now, applied, once)
    if not advice.changes:
        assert not advice.label and (not fits(now) or best > (1 - WORTH) * clock(now)(now))
        return
    then = predict(applied(advice.changes))
    assert fits(then) and not stopping(then)
    assert changed(then.experiment, now.experiment) == ()
    s = then.experiment.strategy
    assert s.batch % s.microbatches == 0 or "strategy.microbatches" not in advice.changes
    assert clock(now)(then) <= best
    if fits(now):
        assert f"saves {1 - clock(now)(then) / clock(now)(now):.1%}" in advice.words
        more = held(then) - held(now)
        assert abs(more) < 1e6 or format_quantity(abs(more), "B") in advice.words
    else:
        assert f"then holds {format_quantity(held(then), 'B')}" in advice.words
        took = re.search(r"trains in (.*)\.", advice.words)
        assert endless(then) if took is None else took[1] == format_quantity(run_time(then), "s")


def clock(now):
    """Return the time that is shortened: that of the headline; without failures where they prevent any end."""
    return (lambda p: float(p.time_to_train)) if endless(now) else run_time


def tried_once(applied):
    """Let a function of changes return the same experiment for the same changes."""
    found = {}

    def known(changes):
        key = repr(sorted(changes.items()))
        if key not in found:
            found[key] = applied(changes)
        return found[key]

    return known


def best_of(now, applied, price=predict):
    """Return the s of the fastest candidate that can run. price: predicts an experiment."""
    found = [float("inf")]
    for _, changes in moves(now.experiment):
        try:
            there = price(applied(changes))
        except SpecError:
            continue
        if fits(there) and not stopping(there):
            found.append(clock(now)(there))
    return min(found)


def test_no_pipeline_is_advised_where_only_a_lost_measurement_makes_it_fast():
    """You 2018 has a measured rate: on 16 stages its ResNet-50 takes 2.7 times as long, not 8% less."""
    choice = Choice(preset(YOU))
    pipeline = split(1, 16, 256, 64)
    now, then = (predict(experiment_of(each)) for each in (choice, choice.with_changes(pipeline)))
    assert float(then.time_to_train) > 2 * float(now.time_to_train)
    assert "strategy.pipeline" not in advise(now).changes


def test_two_degrees_are_advised_where_one_that_fits_is_far_slower():
    choice = Choice(preset(GPT)).with_changes(split(2, 1, 24, 24, nodes=16, recompute="none"))
    now = predict(experiment_of(choice))
    advice = advise(now)
    assert {"tensor", "pipeline"} <= set(re.findall(r"(\w+) parallelism", advice.label))
    alone = best_of(now, lambda more: now.experiment.set(more))
    assert run_time(predict(now.experiment.set(advice.changes))) < 0.9 * alone
