"""Laws of a run under a cap: the system holds it, the ledger tells what is refused, no bit is changed."""

import pytest

from lib_dlhpc.prediction.ledger import peak
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.training.lab import capped as room
from lib_dlhpc.training.lab.capped import available, capped
from lib_dlhpc.training.lab.mistakes import LabError

pytestmark = pytest.mark.skipif(not available(), reason="this system does not tell a peak")
CAP = 30e6


def experiment(**strategy):
    """A network of about twice the cap."""
    return read_experiment(
        {
            "model": {"family": "mlp", "widths": [400] * 26 + [10], "activation": "tanh"},
            "dataset": {"name": "digits"},
            "machine": {"name": "laptop"},
            "strategy": {"devices_per_node": 1, "batch": 256, **strategy},
        }
    )


def ledger(own):
    return sum(value for name, value in peak(own).terms.items() if name != "driver and workspace")


@pytest.fixture(scope="module")
def free():
    return capped(experiment())


def test_the_peak_is_the_ledgers(free):
    assert ledger(experiment()) > 1.9 * CAP
    assert free.peak == pytest.approx(ledger(experiment()), rel=0.1)
    assert free.seconds > 0 and not free.refused


def test_what_does_not_fit_is_refused_by_the_system():
    told = capped(experiment(), CAP)
    assert told.refused and told.peak == 0


def test_out_of_core_it_trains_under_the_cap_and_no_bit_is_changed(free):
    told = capped(experiment(offload="all"), CAP)
    assert not told.refused and 0 < told.peak < CAP
    assert (told.loss, told.weights) == (free.loss, free.weights)


@pytest.mark.parametrize("strategy", [{"recompute": "full"}, {"offload": "activations"}])
def test_what_is_made_again_or_put_away_takes_less(free, strategy):
    told = capped(experiment(**strategy))
    assert told.peak < free.peak - 3e6
    assert told.weights == free.weights


def test_microbatches_take_less_and_are_summed(free):
    told = capped(experiment(microbatches=4))
    assert told.peak < free.peak
    assert float.fromhex(told.loss) != 0 and told.weights != free.weights  # other samples a pass


def test_a_run_that_fails_or_does_not_end_says_so(monkeypatch):
    wrong = experiment(recompute="full")
    monkeypatch.setattr(room, "PATIENCE", 0.05)
    with pytest.raises(LabError, match=r"did not end in 0\.05 s"):
        capped(wrong)


def test_another_system_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(room, "STATUS", tmp_path / "nothing")
    with pytest.raises(LabError, match="Linux does"):
        capped(experiment())
