"""A run under a memory cap: the system enforces it, the ledger predicts refusals, results are bitwise equal."""

import pytest

from lib_dlhpc.labs.fit_the_model import capped_run as module
from lib_dlhpc.labs.fit_the_model.capped_run import available, capped
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.prediction.memory.rank_memory import peak
from lib_dlhpc.spec.experiment import Experiment

pytestmark = pytest.mark.skipif(not available(), reason="this system does not report peak memory")
CAP = 30e6


def experiment(**strategy):
    """A network of about twice the cap."""
    return Experiment(
        model={"family": "mlp", "widths": [400] * 26 + [10], "activation": "tanh"},
        dataset="digits",
        machine="laptop",
        strategy={"devices_per_node": 1, "batch": 256, **strategy},
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
    result = capped(experiment(), CAP)
    assert result.refused and result.peak == 0


def test_out_of_core_it_trains_under_the_cap_bitwise_equal(free):
    result = capped(experiment(offload="all"), CAP)
    assert not result.refused and 0 < result.peak < CAP
    assert (result.loss, result.weights) == (free.loss, free.weights)


@pytest.mark.parametrize("strategy", [{"recompute": "full"}, {"offload": "activations"}])
def test_recomputation_and_offload_reduce_memory(free, strategy):
    result = capped(experiment(**strategy))
    assert result.peak < free.peak - 3e6
    assert result.weights == free.weights


def test_microbatches_reduce_memory_and_are_summed(free):
    result = capped(experiment(microbatches=4))
    assert result.peak < free.peak
    # Other samples in each pass.
    assert float.fromhex(result.loss) != 0 and result.weights != free.weights


def test_a_failed_or_hung_run_raises_an_error(monkeypatch):
    wrong = experiment(recompute="full")
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    with pytest.raises(LabError, match=r"did not end in 0\.05 s"):
        capped(wrong)


def test_an_unsupported_system_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "STATUS", tmp_path / "nothing")
    with pytest.raises(LabError, match="Linux does"):
        capped(experiment())
