"""Laws of exchanges that meet: the price is that of the simulation with events, where each message is a flow.

Each rank has a node, or two share the NICs of one. The price without the meeting is 9 to 17% too fast (`alone`).
"""

import pytest
from split_runs import GPT, split

from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown

SLOW = {"latency": 1e-6, "bandwidth": 1e9}
LARGE = GPT | {"hidden": 256, "sequence": 128, "layers": 8, "vocabulary": 1024}
# What meets: tensor ranks and gradients; tensor ranks and gathered weights; keys and values that are gathered and
# weights; messages between stages and gathered weights.
MEET = {
    "gradients": {"tensor": 2, "data": 4, "microbatches": 2, "bucket": "1 MB"},
    "weights": {"tensor": 4, "data": 2, "microbatches": 2, "zero": 3},
    "context": {"context": 2, "data": 4, "microbatches": 2, "zero": 3},
    "messages": {"pipeline": 4, "data": 4, "microbatches": 8, "zero": 3, "schedule": "gpipe"},
}


def step(run):
    return float(predict(run).step_time)


def played(run):
    return float(breakdown(simulate(run, "events")).step_time)


@pytest.mark.parametrize("ways", MEET.values(), ids=MEET)
def test_exchanges_that_meet_take_as_long_as_with_events(ways):
    run = split(LARGE, SLOW, precision="bf16", **{"batch": 32} | ways)
    assert step(run) == pytest.approx(played(run), rel=0.03)


@pytest.mark.parametrize("ways", MEET.values(), ids=MEET)
def test_without_meeting_the_price_is_too_fast(ways, request):
    met, alone = (split(LARGE, SLOW, precision="bf16", **{"batch": 32} | ways) for _ in range(2))
    as_met = step(met)
    request.getfixturevalue("without_meeting")
    assert step(alone) < 0.97 * as_met


def test_exchanges_that_meet_take_no_longer_than_one_after_the_other():
    run = split(LARGE, SLOW, precision="bf16", batch=32, **MEET["gradients"])
    assert step(run) <= step(run.set({"strategy.overlap": False})) * (1 + 1e-9)


# Messages that take less than the passes of a microbatch, and more: docs/limits.md, exchanges that meet.
BOTH_WAYS = {
    "short": ("1f1b", 1e10, 0.0),
    "long": ("1f1b", 3e8, -0.061),
    "one way at a time": ("gpipe", 3e8, 0.0),
}


@pytest.mark.parametrize(("schedule", "bandwidth", "known"), BOTH_WAYS.values(), ids=BOTH_WAYS)
def test_messages_in_both_directions_share_the_nic(schedule, bandwidth, known):
    """What a message adds to one before it, the path adds to the next: too late where microbatches are few."""
    links = {"latency": 1e-6, "bandwidth": bandwidth}
    model = LARGE | {"layers": 16}
    ways = {"pipeline": 8, "microbatches": 16, "schedule": schedule, "batch": 32}
    run = split(model, links, precision="bf16", **ways).set({"machine.nics": 1})
    assert step(run) / played(run) - 1 == pytest.approx(known, abs=0.005)
