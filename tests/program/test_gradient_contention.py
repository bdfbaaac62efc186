"""Laws of gradients that meet messages between stages: the price is near that of events, and all engines have it."""

import numpy as np
import pytest
from split_runs import GPT, split

from lib_dlhpc.planner.prices import predicted
from lib_dlhpc.prediction import predict
from lib_dlhpc.program.gradient_contention import GradientExchanges, LinkShares
from lib_dlhpc.program.program import Program
from lib_dlhpc.simulation import simulate, simulate_terms
from lib_dlhpc.timeline import breakdown

MODEL = GPT | {"hidden": 256, "sequence": 128, "layers": 16, "vocabulary": 1024}
INTERLEAVED = {"schedule": "interleaved", "chunks": 2}
# Pipelines of 8 stages with two replicas on other nodes: B/s, strategy.
MEET = {
    "gpipe": (2e8, {"microbatches": 16, "schedule": "gpipe"}),
    "1f1b": (2e8, {"microbatches": 8}),
    "interleaved": (1e9, {"microbatches": 8} | INTERLEAVED),
    "interleaved, sharded": (3e9, {"microbatches": 16, "zero": 1} | INTERLEAVED),
}


def run_of(bandwidth, ways):
    links = {"latency": 1e-6, "bandwidth": bandwidth}
    batch = 2 * ways["microbatches"]
    run = split(MODEL, links, precision="bf16", pipeline=8, data=2, batch=batch, **ways)
    return run.set({"machine.nics": 1, "machine.topology": "single-switch"})


def step(run):
    return float(predict(run).step_time)


@pytest.mark.parametrize("meet", MEET.values(), ids=MEET)
def test_gradients_that_meet_messages_take_as_long_as_with_events(meet, monkeypatch):
    run, again = run_of(*meet), run_of(*meet)
    events = float(breakdown(simulate(run, "events")).step_time)
    assert step(run) == pytest.approx(events, rel=0.03)
    monkeypatch.setattr(Program, "shares", None)
    assert step(again) < 0.95 * events


@pytest.mark.parametrize("meet", MEET.values(), ids=MEET)
def test_rounds_and_plans_have_the_same_price(meet):
    run = run_of(*meet)
    terms = predict(run).terms
    assert simulate_terms(run).step_time == pytest.approx(step(run), rel=1e-9)
    assert sum(map(float, terms.values())) == pytest.approx(step(run), rel=1e-12)
    same = run.strategy
    columns = {"microbatches": np.array([same.microbatches, 2 * same.microbatches])}
    columns |= {"pipeline": np.full(2, 8), "data": np.full(2, 2)}
    columns |= {"schedule": np.array([same.schedule] * 2), "chunks": np.full(2, same.chunks)}
    for rows, found in predicted(run, columns):
        for place, row in enumerate(rows.tolist()):
            one = run.set({"strategy.microbatches": int(columns["microbatches"][row])})
            assert np.ravel(found.step_time)[place] == pytest.approx(step(one), rel=1e-9)


def test_a_message_and_gradients_take_as_long_together_as_one_after_the_other():
    both = GradientExchanges(LinkShares([1.0, 0.0], [1.0, 0.0], 1), [0.0, 0.0], one=True)
    assert both.meet(1, 0, 0.0, 3.0) == 0.0  # nothing is exchanged yet
    assert both.join(1, 1.0) == 3.0  # gradients that are posted at 1 s are behind it
    both.joined(1, 1.0, 3.0, 5.0, 8.0)
    # Of the first message 2 s were left, in which it went half as fast: the next begins at 5 s and has 3 s to share.
    assert both.meet(1, 0, 4.0, 4.0) == 1.0 + 3.0
    assert both.free[1] == 11.0
