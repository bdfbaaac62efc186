"""Laws of the format in which tokens travel to experts: half of the messages shrink to it, and nothing else changes."""

import pytest
from same_terms import assert_same_terms
from split_runs import MOE, split

from lib_dlhpc.errors import SpecError
from lib_dlhpc.parallel import program, steps
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.no_effect import without_effect
from lib_dlhpc.program import Collective, prove
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown

NO_LATENCY = {"latency": 0.0, "bandwidth": 1e9}
FP8 = 1 + 4 / 128  # B an element: tiles of 128 have a scale in fp32
WAYS = [
    {"data": 4, "experts": 2},
    {"data": 4, "experts": 4, "zero": 3},
    {"data": 4, "experts": 4, "recompute": "full"},
    {"data": 2, "experts": 2, "tensor": 2},
    {"data": 2, "experts": 2, "pipeline": 2, "microbatches": 8, "schedule": "dualpipe"},
    {"data": 2, "experts": 2, "pipeline": 2, "microbatches": 4, "schedule": "zb-h1"},
]


def run_of(wire="fp8", links=None, **ways):
    ways = {"batch": 16, "precision": "fp8", "expert_wire": wire} | ways
    return split(MOE, links, **ways)


def sizes(run):
    """Return the bytes of a token's exchanges with experts, forward and backward, of all layers of the first stage."""
    held = program(run).stages[0][0]
    price = held.last.prices[0].bytes
    return [
        [
            price(each)
            for each in way.variants[0].instructions
            if isinstance(each, Collective) and each.kind == "experts"
        ]
        for way in (held.forward, held.last)
    ]


def test_there_it_is_one_byte_with_scales_and_home_two():
    """Of each layer, forward and backward: tokens of a microbatch, times the experts of each, times the width."""
    elements = 16 * MOE["sequence"] * MOE["chosen"] * MOE["hidden"]
    for way in sizes(run_of(data=4, experts=4)):
        assert way == pytest.approx([FP8 * elements, 2 * elements] * MOE["layers"])
    for way in sizes(run_of("same", data=4, experts=4)):
        assert way == [2 * elements] * (2 * MOE["layers"])


@pytest.mark.parametrize(("recompute", "there", "home"), [("none", 2, 2), ("full", 3, 3)])
def test_without_latency_messages_take_what_their_bytes_say(recompute, there, home):
    """Recomputation sends tokens to experts and home once more."""
    wide, narrow = (
        float(
            predict(run_of(way, NO_LATENCY, data=4, experts=4, recompute=recompute))
            .messages["experts"]
            .total
        )
        for way in ("same", "fp8")
    )
    assert narrow / wide == pytest.approx((there * FP8 + home * 2) / (2 * (there + home)))


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_predicted_is_what_is_played_and_the_program_trains(ways):
    run = run_of(**ways)
    prove(steps(run))
    assert_same_terms(run)


def test_with_events_it_takes_as_long():
    run = run_of(data=4, experts=4)
    rounds, events = (breakdown(simulate(run, each)) for each in ("rounds", "events"))
    assert events.step_time == pytest.approx(rounds.step_time, rel=1e-9)


def test_only_messages_of_experts_change():
    wide, narrow = (predict(run_of(way, data=4, experts=4)) for way in ("same", "fp8"))
    assert wide.memory == narrow.memory
    for name, seconds in wide.messages.items():
        assert (seconds == narrow.messages[name]) == (name != "experts")
    assert float(wide.forward) == float(narrow.forward)
    assert float(wide.backward) == float(narrow.backward)


def test_other_precisions_send_what_they_compute_in():
    with pytest.raises(
        SpecError, match=r"strategy.expert_wire = 'fp8': .*legal with strategy.precision"
    ):
        run_of(precision="bf16", data=4, experts=4)


def test_tokens_that_stay_have_no_format():
    (note,) = without_effect(run_of(data=4))
    assert "no token travels" in note
