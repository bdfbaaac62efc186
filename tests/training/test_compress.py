"""Compressed gradients: nothing is lost, bytes are counted, and a run learns as without compression."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.costs.compression import density
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.spec.training import Training
from lib_dlhpc.training.check import check
from lib_dlhpc.training.compress import Compressed, largest, plain
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.record import Recorder

DIGITS = """
model = {{ name = "mlp-digits" }}
dataset = {{ name = "digits" }}
machine = {{ name = "laptop" }}
[strategy]
devices_per_node = 1
batch = 64
{strategy}
[run]
epochs = 20
[training]
rate = 0.05
{training}
"""


def experiment(training="", strategy=""):
    return loads(DIGITS.format(training=training, strategy=strategy))


@pytest.fixture
def alone():
    """The communicator of one rank."""
    return pytest.importorskip("mpi4py.MPI").COMM_SELF


def exchange(comm, momentum=0.0, dtype=np.float64, **training):
    network = Network(experiment().model, dtype)
    return Compressed(Training(**training), momentum, network, comm, Recorder())


def steps(exchange, count=6, seed=0):
    """Yield the gradients of some steps and the result of the exchange."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        own = rng.normal(size=exchange.gradients.size).astype(exchange.gradients.dtype)
        exchange.gradients[...] = own
        exchange.begin(0.0)
        exchange.finish()
        yield own, exchange.gradients.copy()


def test_sparsity_warms_up_as_in_the_paper():
    training = Training(sparsity=0.999, sparsity_warm_up=4.0)
    kept_back = [1 - density(training, epoch) for epoch in (0, 1.5, 2, 3.9, 4, 90)]
    assert kept_back == pytest.approx([0.75, 0.9375, 0.984375, 0.996, 0.999, 0.999], abs=2e-3)
    assert density(replace(training, sparsity_warm_up=0.0), 0.0) == pytest.approx(0.001)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.data())
def test_the_largest_are_none_smaller_than_the_rest(numbers, data):
    values = np.array(numbers)
    count = data.draw(st.integers(1, len(values)))
    places = largest(values, count)
    assert len(set(places.tolist())) == count
    rest = np.delete(np.abs(values), places)
    assert not len(rest) or np.abs(values[places]).min() >= rest.max()


@pytest.mark.parametrize("shape", ["normal", "few", "equal", "sorted", "periodic"])
@pytest.mark.parametrize("count", [1, 7, 100, 5_000, 19_999])
def test_a_sample_rules_none_of_the_largest_out(shape, count):
    """Of many values, where a threshold from a sample is used."""
    values = np.random.default_rng(1).normal(size=20_000)
    if shape == "few":
        values[50:] = 0
    elif shape == "equal":
        values[:] = -2.0
    elif shape == "sorted":
        values.sort()
    elif shape == "periodic":
        values = np.where(np.arange(20_000) % 101 == 0, 5.0, values)
    places = largest(values, count)
    assert len(set(places.tolist())) == count == len(places)
    assert sorted(np.abs(values[places])) == sorted(np.abs(values))[-count:]


@pytest.mark.parametrize("sparsity", [0.5, 0.9, 0.999])
def test_sent_and_unsent_gradients_are_all_gradients_so_far(alone, sparsity):
    own = exchange(alone, sparsity=sparsity)
    given_in, sent = (sum(each) for each in zip(*steps(own), strict=True))
    np.testing.assert_allclose(sent + own.unsent, given_in, rtol=0, atol=1e-12)
    assert np.any(own.unsent != 0)


def test_momentum_is_corrected_and_masked_as_in_the_paper(alone):
    """Against the paper's rule, written out tensor by tensor with a full sort."""
    own = exchange(alone, momentum=0.9, sparsity=0.9)
    u, v = np.zeros_like(own.gradients), np.zeros_like(own.gradients)
    for gradients, sent in steps(own):
        wanted = np.zeros_like(sent)
        for each in own.network.parameters:
            part = slice(each.start, each.stop)
            u[part] = 0.9 * u[part] + gradients[part]
            v[part] += u[part]
            if not each.decays:  # a bias is sent uncompressed
                wanted[part], v[part] = v[part], 0
                continue
            size = each.stop - each.start
            order = np.argsort(-np.abs(v[part]), kind="stable")[: round(0.1 * size)] + each.start
            wanted[order] = v[order]
            u[order] = v[order] = 0
        np.testing.assert_allclose(sent, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sending_everything_equals_no_compression(alone, momentum):
    training = Training(momentum=momentum, weight_decay=0.01)
    own = exchange(alone, momentum, sparsity=0.0, weight_decay=0.01)
    dense = Network(experiment().model, np.float64)
    compressed_rule, dense_rule = plain(training), Optimizer("momentum", training)
    for gradients, _ in steps(own):
        dense.gradients[...] = gradients
        compressed_rule.update(own.network, 0.1)
        dense_rule.update(dense, 0.1)
    np.testing.assert_allclose(own.network.weights, dense.weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype, pair", [(np.float32, 8), (np.float64, 12)])
def test_bytes_are_those_of_values_indices_and_uncompressed_tensors(alone, dtype, pair):
    own = exchange(alone, dtype=dtype, sparsity=0.9)
    list(steps(own, 1))
    wanted = 0
    for each in own.network.parameters:
        size = each.stop - each.start
        wanted += round(0.1 * size) * pair if each.decays else size * np.dtype(dtype).itemsize
    assert sum(size for *_, size, _ in own.recorder.rows) == wanted == own.recorder.sent


def test_a_run_at_99_percent_sparsity_matches_the_uncompressed_accuracy(alone):
    """Within 2 points of test accuracy (of 359 test samples a point is 3.6), with a tenth of the bytes or less."""
    from lib_dlhpc.training.trainer import train

    runs = [train(experiment(training), alone) for training in ("", "sparsity = 0.99")]
    dense, sparse = (run.accuracy for run in runs)
    assert dense > 0.95
    assert sparse > dense - 0.02
    assert runs[1].sent < 0.1 * runs[0].gradients


@pytest.mark.parametrize(
    "strategy, message",
    [
        ('optimizer = "adam"', "strategy.optimizer = 'sgd' or 'momentum', not 'adam'"),
        ('optimizer = "lars"', "not 'lars'"),
        ('update = "local"', "strategy.update = 'synchronous', not 'local'"),
        ('precision = "fp16"', "not 'fp16'"),
    ],
)
def test_what_cannot_be_compressed_is_refused(strategy, message):
    with pytest.raises(SpecError, match=message):
        check(experiment("sparsity = 0.9", strategy))
