"""Laws of the fit: limits, constants recovered, runs that never arrived, intervals."""

import numpy as np
import pytest

from lib_dlhpc.convergence.critical_batch import Law, Runs, fit

BATCHES = np.array([16, 64, 256, 1024, 4096, 16384])


def law(least=10.0, critical=1000.0, small=0.0):
    logs = np.array([np.log(least), np.log(critical), np.log(small + 1e-30), -3.0, -3.0])
    return Law(logs, np.zeros((5, 5)), 1.645)


def drawn(seed=0, runs=5, whole=1.0, most=np.inf, least=10.0, critical=1000.0, small=20.0):
    """Runs of a known law, evaluated every `whole` epochs and ended at `most`."""
    random, batch = np.random.default_rng(seed), np.repeat(BATCHES, runs).astype(float)
    epochs = least * (1 + batch / critical + small / batch)
    epochs = epochs * np.exp(np.repeat(random.normal(0, 0.08, len(BATCHES)), runs))
    epochs = epochs * np.exp(random.logistic(0, 0.04, len(batch)))
    high = np.ceil(epochs / whole) * whole
    ended = high > most
    return Runs(batch, np.where(ended, most, high - whole), np.where(ended, np.inf, high))


def test_below_the_critical_batch_epochs_stay_and_above_it_steps_stay():
    middle, _, _ = law().epochs(np.array([1.0, 2.0, 1e3, 1e7, 2e7]))
    assert middle[1] / middle[0] == pytest.approx(1, rel=2e-3)
    assert middle[2] / middle[0] == pytest.approx(2, rel=2e-3)
    assert middle[4] / middle[3] == pytest.approx(2, rel=1e-3)


def test_epochs_rise_and_steps_fall_with_the_batch():
    batch = np.geomspace(1, 1e6, 50)
    middle, low, high = law().epochs(batch)
    assert (np.diff(middle) > 0).all() and (np.diff(middle / batch) < 0).all()
    assert ((low < middle) & (middle < high)).all()


def test_a_rate_that_is_not_tuned_costs_small_batches_epochs():
    middle, _, _ = law(small=100.0).epochs(np.array([10.0, 300.0, 1e5]))
    assert middle[0] > 2 * middle[1] and middle[2] > 2 * middle[1]


@pytest.mark.parametrize("seed", range(3))
def test_the_fit_finds_the_constants_of_the_law(seed):
    found = fit(drawn(seed))
    middle, low, high = found.critical_batch
    assert low < 1000 < high and high / low < 4
    assert np.exp(found.logs[0]) == pytest.approx(10, rel=0.2)
    assert middle == pytest.approx(1000, rel=0.3)


def test_runs_that_never_arrived_move_the_estimate_up_and_widen_it():
    """The runs at 16,384, of about 170 epochs, ended at 400 without the target: to drop them is another answer."""
    whole = drawn()
    late = whole.batch > 1e4
    ended = Runs(whole.batch, np.where(late, 400.0, whole.low), np.where(late, np.inf, whole.high))
    dropped = Runs(*(value[~late] for value in (whole.batch, whole.low, whole.high)))
    at = {name: fit(runs).epochs(16384.0) for name, runs in (("kept", ended), ("not", dropped))}
    assert at["kept"][0] > 1.3 * at["not"][0]
    middle, low, high = fit(whole).epochs(16384.0)
    assert at["kept"][0] > 1.5 * middle and at["kept"][2] / at["kept"][1] > high / low


def test_each_censored_run_counts():
    base = drawn(runs=2)
    more = [base]
    for extra in (1, 4):
        late = np.full(extra, 4096.0), np.full(extra, 150.0), np.full(extra, np.inf)
        rows = zip((base.batch, base.low, base.high), late, strict=True)
        more.append(Runs(*(np.concatenate(pair) for pair in rows)))
    middles = [float(fit(runs).epochs(4096.0)[0]) for runs in more]
    assert middles == sorted(middles) and middles[2] > 1.1 * middles[0]


def test_whole_epochs_are_intervals():
    """Two epochs are something between one and two: coarse runs find the same law, with a wider interval."""
    fine, coarse = (fit(drawn(whole=whole, least=1.5)) for whole in (0.01, 1.0))
    middles = [float(found.epochs(300.0)[0]) for found in (fine, coarse)]
    assert middles[1] == pytest.approx(middles[0], rel=0.25)


def test_more_batches_narrow_the_interval():
    few, many = drawn(), drawn()
    keep = np.isin(few.batch, BATCHES[1:5])
    few = Runs(few.batch[keep], few.low[keep], few.high[keep])
    (_, low, high), (_, lower, higher) = (fit(runs).epochs(300.0) for runs in (few, many))
    assert high / low > higher / lower


def test_the_runs_of_a_batch_inform_about_it():
    """The misfit of a measured batch is known as far as its runs show it."""
    runs = drawn(runs=8)
    odd = runs.batch == 256
    moved = Runs(runs.batch, np.where(odd, 1.6, 1) * runs.low, np.where(odd, 1.6, 1) * runs.high)
    found = fit(moved)
    middle, low, high = found.informed(256.0, moved)
    measured = np.median(moved.high[odd])
    assert abs(np.log(middle / measured)) < 0.3 * abs(np.log(found.epochs(256.0)[0] / measured))
    assert low < measured < high
