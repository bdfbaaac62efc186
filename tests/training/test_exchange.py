"""Laws of the exchange: buckets are launched when full, in order, one at a time, and all are waited for."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.training.exchange import Exchange, bucket_bounds, exchange_of
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.single_rank import SingleRank

EXPERIMENT = loads("""
[model]
name = "cnn-digits"
[dataset]
name = "digits"
[machine]
name = "laptop"
""")
SIZES = st.floats(1, 1e5)


@pytest.fixture(scope="module")
def filled():
    """The offsets from which gradients are complete, in the order of backward."""
    network, starts = Network(EXPERIMENT.model), []
    network.backward(network.forward(np.ones((2, 1, 8, 8), np.float32)), starts.append)
    return starts


@given(bucket=SIZES, element=st.sampled_from([2, 4, 8]))
def test_buckets_are_slices_from_the_end_that_make_up_all_gradients(bucket, element):
    bounds = bucket_bounds(EXPERIMENT.set({"strategy.bucket": bucket}), element)
    size = Network(EXPERIMENT.model).gradients.size
    assert bounds[0][1] == size and bounds[-1][0] == 0
    assert all(later[1] == first[0] for first, later in itertools.pairwise(bounds))
    assert all((stop - start) * element >= bucket for start, stop in bounds[:-1])


@given(bucket=SIZES)
def test_a_bucket_ends_where_backward_has_filled_it(filled, bucket):
    bounds = bucket_bounds(EXPERIMENT.set({"strategy.bucket": bucket}), 4)
    assert {start for start, _ in bounds} <= set(filled)


class Slow:
    """An allreduce that completes after `tests` tests and logs its calls and whether its gradients were complete."""

    def __init__(self, number, tests, log):
        self.number, self.tests, self.log = number, tests, log

    def start(self):
        self.left = self.tests
        self.log.append(("start", self.number))

    def test(self):
        self.left -= 1
        if self.left <= 0:
            self.log.append(("end", self.number))
        return self.left <= 0

    def wait(self):
        self.log.append(("end", self.number))


BOUNDS = [(8, 10), (5, 8), (4, 5), (0, 4)]


def exchange_with(tests, overlap, log):
    gradients = np.zeros(10)
    sums = [Slow(number, each, log) for number, each in enumerate(tests)]
    return Exchange(gradients, BOUNDS, sums, gradients, overlap, Recorder())


@given(
    tests=st.lists(st.integers(1, 6), min_size=4, max_size=4),
    starts=st.sets(st.integers(1, 9)),
    overlap=st.booleans(),
)
def test_buckets_are_launched_when_full_in_order_and_one_at_a_time(tests, starts, overlap):
    log = []
    exchange = exchange_with(tests, overlap, log)
    for _ in range(2):  # steps
        log.clear()
        for start in [*sorted(starts, reverse=True), 0]:
            exchange.release(start)
            for what, number in log:
                assert what != "start" or BOUNDS[number][0] >= start, "launched before it was full"
            assert overlap or not log, "without overlap all wait for backward"
        exchange.finish()
        expected = [(what, number) for number in range(4) for what in ("start", "end")]
        assert log == expected


def test_with_overlap_the_first_bucket_is_done_before_backward_ends():
    log = []
    exchange = exchange_with([1, 1, 1, 1], True, log)
    exchange.release(9)
    assert not log
    exchange.release(6)
    assert log == [("start", 0), ("end", 0)]
    exchange.release(5)
    assert log[-1] == ("end", 1)


def test_all_bytes_sent_are_counted_and_recorded():
    exchange = exchange_with([1, 1, 1, 1], True, [])
    exchange.release(0)
    exchange.finish()
    assert exchange.sent == 10 * 8
    rows = {name: size for _, _, name, _, _, size, _ in exchange.recorder.rows}
    assert rows == {"bucket 1": 16, "bucket 2": 24, "bucket 3": 8, "bucket 4": 32}


@pytest.mark.parametrize(("precision", "element"), [("fp16", 2), ("fp32", 4), ("fp64", 8)])
def test_the_wire_has_the_requested_precision(precision, element):
    experiment = EXPERIMENT.set({"strategy.precision": precision, "strategy.bucket": 1000})
    gradients = np.linspace(-1, 1, Network(EXPERIMENT.model).gradients.size)
    gradients = gradients.astype(np.float64 if precision == "fp64" else np.float32)
    before = gradients.copy()
    with exchange_of(experiment, gradients, SingleRank(), Recorder()) as exchange:
        exchange.release(0)
        exchange.finish()
    rounded = before.astype(f"f{element}").astype(gradients.dtype)
    assert (gradients == rounded).all()
    assert exchange.sent == element * gradients.size
