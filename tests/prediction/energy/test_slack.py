"""Slack of a pipeline: no path gets longer, no pass shorter, and what is saved is what bubbles allow."""

from itertools import product

import numpy as np
import pytest

from lib_dlhpc import SpecError, loads
from lib_dlhpc.explore.energy_planning.pipeline_slack import Setting, experiment
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.energy.slack import BEST_CLOCK, LONGEST, slack

RUN = loads("""
[model]
name = "gpt-1536x16"
[dataset]
name = "webtext"
[machine]
name = "summit"
[strategy]
nodes = 1
devices_per_node = 4
precision = "fp16"
pipeline = 4
microbatches = 8
batch = 8
""")


def ends(found, seconds):
    """When each pass ends if messages take no time, replayed one by one."""
    clock, end = {}, []
    for call, each in zip(found.passes, seconds, strict=True):
        start = clock.get(call.place, 0.0)
        if call.source >= 0:
            start = max(start, end[call.source])
        clock[call.place] = start + each
        end.append(start + each)
    return max(end)


FREE = {"machine.intra_node.bandwidth": 1e18, "machine.intra_node.latency": 0.0}


@pytest.mark.parametrize(
    ("schedule", "microbatches"), [*product(("1f1b", "gpipe", "zb-h1"), (1, 4, 8)), ("dualpipe", 8)]
)
def test_passes_are_stretched_at_no_cost_in_time(schedule, microbatches):
    found = slack(
        RUN.set({**FREE, "strategy.schedule": schedule, "strategy.microbatches": microbatches})
    )
    assert ends(found, found.stretched) <= found.step * (1 + 1e-9)
    assert ends(found, found.seconds) == pytest.approx(found.step, rel=1e-9)
    assert np.all(found.stretched >= found.seconds * (1 - 1e-12))
    assert np.all(found.stretched <= found.seconds * LONGEST * (1 + 1e-12))
    assert 0 <= found.saved < found.energy
    for begins, seconds in (
        (found.begins, found.seconds),
        (found.stretched_begins, found.stretched),
    ):
        assert np.max(begins + seconds) == pytest.approx(found.step, rel=1e-9)
        for call, begin in zip(found.passes, begins, strict=True):
            if call.source >= 0:
                assert begin >= (begins + seconds)[call.source] * (1 - 1e-12)


def test_without_a_pipeline_there_is_no_slack():
    found = slack(RUN.set({"strategy.pipeline": 1, "strategy.microbatches": 4}))
    assert found.saved == pytest.approx(0.0, abs=1e-9 * found.energy)
    assert found.stretched == pytest.approx(found.seconds)


def test_one_slow_stage_leaves_the_others_the_ratio():
    """With many microbatches all stages but the slowest run at its pace, and no pass on the slowest is stretched."""
    found = slack(RUN.set({**FREE, "strategy.microbatches": 64, "strategy.batch": 64}))
    by_stage = {}
    for call, old, new in zip(found.passes, found.seconds, found.stretched, strict=True):
        by_stage.setdefault(call.place, []).append((old, new))
    busy = {place: np.sum(each, axis=0) for place, each in by_stage.items()}
    slowest = max(busy, key=lambda place: busy[place][0])
    assert busy[slowest][1] / busy[slowest][0] < 1.02
    for place, (old, new) in busy.items():
        assert new / old <= min(LONGEST, found.step / old) * (1 + 1e-9), place


def test_the_clock_of_least_energy():
    clocks = np.linspace(0.3, 1, 7001)
    energy = 0.3 / clocks + 0.7 * clocks**3  # above idle, of the same work
    assert clocks[np.argmin(energy)] == pytest.approx(BEST_CLOCK, abs=1e-3)


def test_1f1b_saves_what_is_published():
    """Up to 30% (arXiv 2312.06902, abstract), slack for stragglers included: the order of magnitude, no more."""
    # No stage has much more to do, so that only the bubble is slack.
    equal = RUN.set({"model.vocabulary": 64})
    few, many = (
        slack(equal.set({"strategy.microbatches": m, "strategy.batch": m})).saving for m in (4, 16)
    )
    assert 0.01 < many < few < 0.3


def test_a_power_limit_is_refused():
    with pytest.raises(SpecError, match=r"strategy.power_limit = 200 W: .* legal: 0"):
        slack(RUN.set({"strategy.power_limit": 200.0}))


# --- beside Perseus (docs/guide/plan.md) ---

# S and kJ of a step: the ends of its frontier, as published.
FAST, SLOW = ((8.29, 23.6), (10.15, 20.5))


def gpus(prediction):
    """Return the J of the GPUs in a step."""
    return sum(
        float(each) for name, each in prediction.energy.items() if name.startswith("devices")
    )


def as_long(run, step):
    """Return the prediction under the power limit with which a step takes `step` s."""
    low, high = 150.0, 400.0
    for _ in range(40):
        middle = (low + high) / 2
        longer = float(predict(run.set({"strategy.power_limit": middle})).step_time) > step
        low, high = (middle, high) if longer else (low, middle)
    return predict(run.set({"strategy.power_limit": high}))


@pytest.mark.parametrize("microbatches", [8, 16, 32])
def test_the_guide_shows_our_frontier_beside_that_of_perseus(microbatches, repository):
    page = (repository / "docs" / "guide" / "plan.md").read_text(encoding="utf-8")
    run = experiment(Setting(model="gpt3-175b", microbatches=microbatches))
    fast, saved = predict(run), slack(run).saved
    slow = as_long(run, float(fast.step_time) * SLOW[0] / FAST[0])
    least = gpus(fast) - saved
    ends = [
        f"{float(step):.1f} s, {joules / 1e3:.1f} kJ"
        for step, joules in ((fast.step_time, least), (slow.step_time, gpus(slow)))
    ]
    fewer = [f"{100 * each:.1f}%" for each in (saved / gpus(fast), 1 - gpus(slow) / least)]
    row = (str(microbatches), fewer[0], *ends, fewer[1])
    assert f"| here | {' | '.join(row)} |" in page
    assert f"{100 * (1 - SLOW[1] / FAST[1]):.1f}%" in page
