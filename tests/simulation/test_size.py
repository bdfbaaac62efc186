"""A simulation that is too large is refused at once, with advice; the estimate is near the simulation."""

import time

import pytest

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.size import MOST_RANKS, MOST_STEPS, check_size, rows_of_a_step

RUN = Experiment(
    model={
        "family": "gpt",
        "layers": 8,
        "hidden": 64,
        "heads": 8,
        "sequence": 32,
        "vocabulary": 64,
    },
    dataset="words",
    machine={"name": "h100-pod", "nodes": 10_000_000},
    strategy={"batch": 16},
)
SPLITS = [
    {},
    {"strategy.nodes": 4},
    {"strategy.tensor": 4},
    {"strategy.zero": 3},
    {"strategy.pipeline": 4, "strategy.microbatches": 8},
    {"strategy.pipeline": 2, "strategy.microbatches": 4, "strategy.tensor": 2},
    {
        "strategy.pipeline": 2,
        "strategy.microbatches": 4,
        "strategy.schedule": "interleaved",
        "strategy.chunks": 2,
    },
]


@pytest.mark.parametrize(
    ("changes", "steps", "words"),
    [
        ({}, 10**8, "a few hundred suffice"),
        ({"strategy.nodes": 10**6}, 1, "8,000,000 ranks: at most 100,000"),
        ({"strategy.nodes": 1000, "strategy.pipeline": 4}, 1000, "steps, ranks or microbatches"),
        ({"strategy.nodes": 1000}, 1000, "Take fewer steps or ranks"),
    ],
)
@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_too_much_is_refused_at_once(changes, steps, words, fidelity):
    before = time.process_time()
    with pytest.raises(SpecError, match=words) as error:
        simulate(RUN.set(changes), fidelity, steps=steps)
    assert "dlhpc predict" in str(error.value)
    assert time.process_time() - before < 5


def test_the_most_there_is_is_legal():
    check_size(RUN, MOST_STEPS)
    check_size(RUN.set({"strategy.nodes": MOST_RANKS // 8}), 1)


@pytest.mark.parametrize("changes", SPLITS, ids=str)
def test_the_estimate_is_near_what_is_simulated(changes):
    run = RUN.set(changes)
    rows = len(simulate(run, steps=2)) / 2 / int(run.devices)
    assert rows / 2.5 < rows_of_a_step(run) < 5 * rows
