"""Of many candidates those with the least bounds are held: as if all were sorted, without sorting them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.planner import candidates
from lib_dlhpc.planner.candidates import Candidates, least_of
from lib_dlhpc.prediction.validation.replays import replay


@given(st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0, np.inf]), min_size=1), st.integers(1, 60))
def test_the_least_are_the_first_of_a_stable_sort(values, many):
    values = np.array(values)
    np.testing.assert_array_equal(least_of(values, many), np.argsort(values, kind="stable")[:many])


@pytest.mark.parametrize("held", [1, 3, 10, 40])
def test_what_is_not_held_is_counted_and_has_no_lower_bound(held, monkeypatch):
    steps = np.random.default_rng(1).permutation(np.repeat(np.arange(1.0, 11.0), 4))
    run = replay("goyal-2017").experiment
    all_of_them = Candidates(run, {}, np.arange(40), steps, steps, 40, {})
    monkeypatch.setattr(Candidates, "least", lambda self, objective: self.step)
    kept = candidates._first(all_of_them, held)
    assert len(kept) == held and kept.others == 40 - held
    assert (np.diff(kept.numbers) > 0).all()
    assert kept.step.max() <= kept.beyond
    rest = np.setdiff1d(np.arange(40), kept.numbers)
    assert kept.beyond == (steps[rest].min() if len(rest) else np.inf)
