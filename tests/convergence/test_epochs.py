"""What a batch needs: measured answers, refusals outside of what was measured, and the law on a batch unseen."""

import numpy as np
import pytest

from lib_dlhpc.convergence import epochs_to
from lib_dlhpc.convergence.held_out import held_out
from lib_dlhpc.convergence.workloads import names, read, towards, workload_of
from lib_dlhpc.studies.large_batch_results import mean_of, stored, stored_steps
from lib_dlhpc.studies.large_batch_steps import MOST

GOYAL, CIFAR = read("imagenet-resnet50-momentum"), read("cifar100-shufflenetv2")
COUNTED = [name for name in names() if len(read(name).targets)]


# --- Goyal et al. 2017 ---


@pytest.mark.parametrize("batch", [128, 256, 1000, 8192])
def test_goyal_meets_76_percent_in_90_epochs_up_to_8_k(batch):
    found = epochs_to(GOYAL, 0.76, batch)
    assert found[:3] == (90, 90, 90) and found.known


@pytest.mark.parametrize("batch", [8193, 16384, 64000, 65536, 128_512])
def test_beyond_8_k_it_is_refused_with_the_reason(batch):
    found = epochs_to(GOYAL, 0.76, batch)
    assert not found.known and np.isnan(found.high)
    assert f"{batch:,} is beyond 8,192" in found.reason and "Goyal" in found.reason


def test_a_lower_target_is_met_by_64_k():
    assert epochs_to(GOYAL, 0.66, 65536).epochs == 90
    assert not epochs_to(GOYAL, 0.661, 65536).known


def test_below_the_smallest_batch_it_is_refused():
    assert "64 is below 128" in epochs_to(GOYAL, 0.76, 64).reason


# --- the stored tables ---


def test_the_mnist_workloads_are_the_stored_tables():
    steps = {run["batch"]: run["met"]["0.9"] for run in read("mnist-momentum").runs}
    for batch, epochs in steps.items():
        taken = [run.steps for run in stored_steps() if run.batch == batch]
        wanted = [n * batch / 4000 if n < MOST else np.nan for n in taken]
        np.testing.assert_allclose(epochs, wanted)
    for name, rule in (("mnist-linear", "linear"), ("mnist-lars", "lars")):
        for run in read(name).runs:
            mean = mean_of(stored(), rule, run["batch"]).mean
            assert np.mean(run["accuracy"]) == pytest.approx(mean)


def test_lars_holds_to_a_larger_batch_than_linear_scaling():
    limits = {
        name: max(towards(name, 0.9).batches[towards(name, 0.9).met >= 0.5])
        for name in ("mnist-linear", "mnist-lars")
    }
    assert limits == {"mnist-linear": 256, "mnist-lars": 2048}


# --- the answer ---


@pytest.mark.parametrize("name", names())
def test_outside_of_what_was_measured_there_is_no_number(name):
    work = read(name)
    for target in work.targets if len(work.targets) else (0.5, 0.7, 0.93):
        found = towards(name, float(target))
        edges = np.array([found.batches[0] / 2, found.batches[-1] * 1.01])
        assert not epochs_to(work, target, edges).known.any()
        inside = epochs_to(work, target, found.batches)
        assert (inside.known <= (found.met >= 0.5)).all()


@pytest.mark.parametrize("name", COUNTED)
def test_at_a_measured_batch_the_median_run_is_in_the_interval(name):
    work = read(name)
    for target in work.targets:
        found = towards(name, float(target))
        epochs, low, high, _ = epochs_to(work, target, found.batches)
        for at in np.flatnonzero(np.isfinite(epochs)):
            runs = found.runs.high[found.runs.batch == found.batches[at]]
            middle = np.sort(runs)[(len(runs) - 1) // 2]
            assert low[at] - 1e-9 <= middle <= high[at] + 1e-9, (target, found.batches[at])


def test_next_to_a_batch_that_missed_the_target_it_is_refused():
    assert epochs_to(CIFAR, 0.65, 256).known
    found = epochs_to(CIFAR, 0.65, 300)
    assert not found.known and "with 512 0 of 5 runs met it" in found.reason
    assert not epochs_to(CIFAR, 0.7, 64).known and not epochs_to(CIFAR, 0.99, 64).known
    assert "no run met 0.99" in epochs_to(CIFAR, 0.99, 64).reason


def test_a_target_between_two_measured_ones_is_answered_by_the_higher():
    assert epochs_to(CIFAR, 0.57, 64)[:3] == epochs_to(CIFAR, 0.6, 64)[:3]
    assert "0.6 is the next" in epochs_to(CIFAR, 0.57, 64).reason


def test_arrays_are_scalars_one_by_one():
    batches = np.array([[8, 50, 4096], [300, 5000, 64]])
    found = epochs_to(CIFAR, 0.5, batches)
    for at, batch in np.ndenumerate(batches):
        one = epochs_to(CIFAR, 0.5, int(batch))[:3]
        np.testing.assert_array_equal([numbers[at] for numbers in found[:3]], one)


def test_a_new_workload_is_one_table():
    rows = [{"batch": b, "met": {"0.5": [e, e + 1, e]}} for b, e in ((32, 4), (128, 5), (512, 9))]
    table = {"title": "toy", "dataset": "toy", "optimizer": "sgd", "metric": "accuracy"}
    work = workload_of({**table, "rate": "0.1", "resolution": 1.0, "batches": rows})
    found = epochs_to(work, 0.5, 200)
    assert 5 <= found.epochs <= 9 and found.low <= found.epochs <= found.high


# --- a batch unseen ---


UNSEEN = {  # targets of some epochs, where whole epochs hide little
    "cifar100-shufflenetv2": (0.4, 0.5, 0.6),
    "imagenet-resnet50-adadelta": (0.55, 0.65),
    "mnist-momentum": (0.9,),
    "movielens-ncf": (0.41,),
}


def test_on_a_batch_left_out_the_law_beats_the_nearest_batch_and_its_intervals_hold():
    rows = [row for name, targets in UNSEEN.items() for row in held_out(read(name), targets)]
    assert len(rows) > 40
    error = {
        by: float(np.median([row.error(by) for row in rows]))
        for by in ("predicted", "nearest", "constant")
    }
    assert error["predicted"] < 0.12 and error["predicted"] < 0.7 * error["nearest"]
    assert error["nearest"] < error["constant"]
    assert 0.88 <= np.mean([row.covered for row in rows]) <= 0.97
