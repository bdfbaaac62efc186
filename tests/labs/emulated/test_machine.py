"""The recorded step equals, up to rounding, the simulated step on the same machine."""

import functools

import pytest

from lib_dlhpc.labs.emulated.machine import hidden_share, machine_of, seconds_of, watch
from lib_dlhpc.labs.findings import seed_of
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import breakdown

LAB = "02_overlap"
NAMES = ["your name", "another", "x"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bucket", [1, 8_000, 20_000, 10**9])
def test_a_recorded_step_is_the_simulated_one(solution, name, bucket):
    experiment = machine_of(seed_of(name))
    recorded = watch(functools.partial(solution(LAB).step, bucket=bucket), experiment).timeline
    played = simulate(experiment.set({"strategy.bucket": 8.0 * bucket}))
    assert seconds_of(recorded) == pytest.approx(seconds_of(played), rel=1e-12)
    assert hidden_share(recorded) == pytest.approx(hidden_share(played), abs=1e-9)
    ours, theirs = breakdown(recorded).terms, breakdown(played).terms
    for cause, seconds in theirs.items():
        assert ours[cause] == pytest.approx(seconds, rel=1e-9, abs=1e-15), cause


def test_a_step_without_overlap_is_the_simulated_one(solution):
    experiment = machine_of(1)
    (after, *_) = solution(LAB).MISTAKES["the exchange follows backward"]
    recorded = watch(after, experiment).timeline
    played = simulate(experiment.set({"strategy.overlap": False, "strategy.bucket": 1e12}))
    assert seconds_of(recorded) == pytest.approx(seconds_of(played), rel=1e-12)
    assert hidden_share(recorded) == hidden_share(played) == 0


def test_the_same_step_makes_the_same_record(solution):
    one, other = (list(watch(solution(LAB).step, machine_of(2)).timeline) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("name", NAMES)
def test_on_every_machine_there_is_something_to_gain_and_a_size_to_choose(checks, name):
    own = checks(LAB)
    sizes = {
        bucket: seconds_of(own.simulate_buckets(name, bucket)) for bucket in (1, 15_000, 10**9)
    }
    assert own.gain(name) > 10
    assert max(sizes.values()) > 1.05 * own.best(name)


def test_without_communication_nothing_is_exposed():
    alone = Experiment(
        model="mlp-digits", dataset="digits", machine="laptop", strategy={"devices_per_node": 1}
    )
    assert hidden_share(simulate(alone)) == 1
