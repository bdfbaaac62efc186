"""Low-rank compression: nothing is lost, what has a low rank is exact, and a run learns as without compression."""

import numpy as np
import pytest

from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.low_rank import Factored
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.single_rank import SingleRank

RUN = Experiment(
    model="mlp-digits",
    dataset="digits",
    machine="laptop",
    strategy={"devices_per_node": 1, "batch": 64},
    run={"epochs": 20},
    training={"rate": 0.05},
)


def exchange(rank):
    network = Network(RUN.model, np.float64)
    error, basis = np.zeros_like(network.weights), np.zeros_like(network.weights)
    return Factored(rank, network, error, basis, SingleRank(), Recorder(), 0)


def matrices(own, flat):
    return [own._view(flat, each) for each in own.some]


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_sent_gradients_and_errors_are_all_gradients_so_far(rank):
    own, random = exchange(rank), np.random.default_rng(0)
    given, sent = np.zeros_like(own.gradients), np.zeros_like(own.gradients)
    for _ in range(5):
        own.gradients[...] = random.normal(size=own.gradients.size)
        given += own.gradients
        own.finish()
        sent += own.gradients
        assert all(np.linalg.matrix_rank(each) == rank for each in matrices(own, own.gradients))
    np.testing.assert_allclose(sent + own.error, given, rtol=0, atol=1e-12)
    assert own.some and np.abs(own.error).max() > 0.1


@pytest.mark.parametrize("rank", [1, 3])
def test_gradients_of_that_rank_are_exact_at_once(rank):
    own, random = exchange(rank), np.random.default_rng(0)
    own.gradients[...] = random.normal(size=own.gradients.size)
    for each in matrices(own, own.gradients):
        rows, columns = each.shape
        each[...] = random.normal(size=(rows, rank)) @ random.normal(size=(rank, columns))
    given = own.gradients.copy()
    own.finish()
    np.testing.assert_allclose(own.gradients, given, rtol=0, atol=1e-10)


def test_gradients_of_zero_stay_zero():
    own = exchange(2)
    for _ in range(2):
        own.gradients.fill(0)
        own.finish()
        assert not own.gradients.any() and not own.error.any()


def test_the_factors_find_the_best_approximation_of_a_gradient_that_stays():
    """With warm start each step is a power iteration: the error comes near that of the singular values."""
    own, random = exchange(2), np.random.default_rng(0)
    given = random.normal(size=own.gradients.size)
    for _ in range(60):
        own.gradients[...] = given
        own.error.fill(0)
        own.finish()
    for got, wanted in zip(matrices(own, own.gradients), matrices(own, given), strict=True):
        left = np.linalg.svd(wanted, compute_uv=False)[2:]
        assert np.linalg.norm(wanted - got) <= 1.01 * np.linalg.norm(left)


def test_a_run_at_rank_2_matches_the_uncompressed_accuracy():
    """Within 2 points of test accuracy."""
    comm = pytest.importorskip("mpi4py.MPI").COMM_SELF
    from lib_dlhpc.training.trainer import train

    dense, factors = (train(RUN.set({"training.low_rank": rank}), comm) for rank in (0, 2))
    assert dense.accuracy > 0.95
    assert factors.accuracy > dense.accuracy - 0.02
    assert factors.sent < 0.25 * factors.gradients
