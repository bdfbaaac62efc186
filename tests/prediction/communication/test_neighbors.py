"""The closed form of a program of neighbors is what the simulator plays where no link is shared."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.communication.neighbors import predict_neighbors
from lib_dlhpc.simulation.neighbors import program, ring, simulate_neighbors
from lib_dlhpc.spec.machine import Link, load_machine
from lib_dlhpc.timeline.analysis import analyze

STEPS, RANKS, SIZE = 3, 4, 1e6
MACHINE = replace(load_machine("laptop"), nodes=RANKS, inter_node=Link(1e-5, 1e9))
MESSAGE = 1e-5 + SIZE / 1e9
WORK = arrays(np.float64, (STEPS, RANKS), elements=st.floats(1e-3, 0.1))


def meeting():
    """The s of the allreduce of 8 B when all are there, as played."""
    alone = simulate_neighbors(program(1, RANKS, 0, 0, 0, SIZE), ring(MACHINE, RANKS))
    return float(alone.stop.max()) - MESSAGE


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_is_played_on_links_that_nobody_shares(seed):
    before, after = np.random.default_rng(seed).uniform(1e-3, 0.1, (2, STEPS, RANKS))
    found = predict_neighbors(before, after, MESSAGE, meeting())
    timeline = simulate_neighbors(
        program(STEPS, RANKS, before, after, 0, SIZE), ring(MACHINE, RANKS)
    )
    # Small messages of an allreduce that has begun may meet large ones: 8 B on a busy link.
    few = STEPS * 2e-5
    assert found.seconds == pytest.approx(timeline.stop.max(), abs=few)
    late = analyze(timeline).waits
    np.testing.assert_allclose(found.terms["works"], (before + after).sum(axis=0))
    np.testing.assert_allclose(found.terms["waits for a sender"], late["late sender"], atol=few)
    waited = late["wait at collective"]
    np.testing.assert_allclose(found.terms["waits at a collective"], waited, atol=few)


@given(WORK, WORK, st.floats(0, 0.01))
def test_the_terms_add_up_on_every_rank_and_nobody_waits_less_than_nothing(before, after, message):
    found = predict_neighbors(before, after, message, 1e-4)
    np.testing.assert_allclose(sum(found.terms.values()), found.seconds)
    assert all((seconds >= -1e-9).all() for seconds in found.terms.values())


def test_a_sender_that_is_late_costs_the_others_what_it_is_late_twice():
    late = 0.01
    before, after = np.full((1, RANKS), 0.02), np.full((1, RANKS), 0.01 + late)
    before[0, 2], after[0, 2] = 0.02 + late, 0.01
    found = predict_neighbors(before, after, 0.0, 0.0)
    assert found.seconds == pytest.approx(0.03 + 2 * late)  # though all have 0.03 + late to do
    np.testing.assert_allclose(found.terms["waits for a sender"], [0, late, 0, late], atol=1e-12)
    np.testing.assert_allclose(found.terms["waits at a collective"], [late, 0, late, 0], atol=1e-12)


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(SpecError, match="steps, ranks"):
        predict_neighbors([[1.0, 2.0]], [[1.0]], 0.0, 0.0)
