"""Several workers in one process: what their rules come to where it is known. tests/mpi compares them with ranks."""

import numpy as np
import pytest
from mpi4py import MPI

from lib_dlhpc.convergence.accuracy_costs import stored
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.studies.accuracy_costs import METHODS, accuracy
from lib_dlhpc.studies.emulated_workers import trained
from lib_dlhpc.training.data import global_batches, load
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.trainer import train

RUN = Experiment(
    model={"family": "mlp", "widths": [64, 16, 10]},
    dataset="digits",
    machine="laptop",
    strategy={"devices_per_node": 1, "batch": 256},
    run={"epochs": 2},
    training={"weight_decay": 1e-3},
)
STALE = {"strategy.update": "asynchronous", "machine.nodes": 2}  # one is the server's


def weights(changes, workers):
    run = RUN.set(changes)
    return trained(run, workers, load(run)).weights


@pytest.mark.parametrize(
    "changes",
    [{}, STALE, {"strategy.update": "local"}, {"training.sparsity": 0.9}],
    ids=["synchronous", "asynchronous", "local", "sparse"],
)
def test_one_worker_is_a_run_on_one_rank(changes):
    alone = changes if "training.sparsity" in changes else {}
    expected = train(RUN.set(alone), MPI.COMM_SELF).network.weights
    np.testing.assert_array_equal(weights(changes, 1), expected)


@pytest.mark.parametrize("workers", [2, 5])
def test_gradients_that_are_sent_whole_are_those_of_one_rank(workers):
    whole = weights({}, 1)
    np.testing.assert_allclose(weights({}, workers), whole, atol=1e-5)
    np.testing.assert_allclose(weights({"strategy.wire": "fp16"}, workers), whole, atol=1e-2)
    coarse = [np.abs(weights({"strategy.wire": w}, workers) - whole).max() for w in ("bf16", "fp8")]
    assert 0 < coarse[0] < coarse[1] < 0.1


def test_averages_of_every_step_are_synchronous():
    local = {"strategy.update": "local", "strategy.local_steps": 2}
    each = weights({"strategy.update": "local"}, 3)
    np.testing.assert_allclose(each, weights({}, 3), atol=1e-6)
    plain = weights(local, 3)
    assert np.abs(plain - each).max() > 1e-5
    slower = weights({**local, "training.outer_rate": 0.5}, 3)
    assert np.abs(slower - plain).max() > 1e-3


def test_as_many_workers_as_batches_use_the_weights_of_the_epochs_start():
    """W workers pull together when an epoch begins, so W gradients are of the same weights."""
    run = RUN.set({**STALE, "strategy.optimizer": "sgd", "run.epochs": 1})
    run = run.set({"training.weight_decay": 0.0})
    data = load(run)
    network = Network(run.model, np.float32, run.run.seed)
    batches = [chosen for _, chosen in global_batches(run, len(data.x), 0)]
    expected = network.weights.copy()
    for chosen in batches:
        network.backward(
            softmax_cross_entropy(network.forward(data.x[chosen]), data.y[chosen], len(chosen))[1]
        )
        expected -= run.training.rate * network.gradients
    found = trained(run, len(batches), data).weights
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(trained(run, 2, data).weights - expected).max() > 1e-5


# --- the table ---


def test_the_table_has_five_seeds_of_each_method():
    rows = [(run.setting, run.value, run.workers, (run[3], run[4])) for run in stored()]
    wanted = [(*method[:3], method[3]) for method in METHODS for _ in range(5)]
    assert rows == wanted


@pytest.mark.parametrize(
    ("setting", "workers", "seed"), [("strategy.update", 8, 1), ("strategy.local_steps", 4, 2)]
)
def test_a_stored_run_is_reproduced(setting, workers, seed):
    """To 1 in 100 test samples: another BLAS rounds otherwise."""
    of = (each for each in stored() if (each.setting, each.workers) == (setting, workers))
    run = next(each for each in of if each.seed == seed)
    value = run.value if isinstance(run.value, str) else int(run.value)
    found = accuracy(setting, value, workers, (run.outer_rate, run.outer_momentum), seed)
    assert found == pytest.approx(run.accuracy, abs=0.01)
