"""Laws of the exchange: buckets are launched when filled, in order, one at a time, and all are waited for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import parallel
from lib_dlhpc.layout import Part, Place
from lib_dlhpc.program import Compute
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.gradient_allreduce import Exchange, exchange_of
from lib_dlhpc.training.groups import Groups
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.synchronous import stage_program

EXPERIMENT = Experiment(model="cnn-digits", dataset="digits", machine="laptop")
ALONE = SingleRank()
GROUPS = Groups(ALONE, Place(0, 0, 0, 0), ALONE, ALONE, ALONE, ALONE)


@given(bucket=st.floats(1, 1e5), precision=st.sampled_from(["fp16", "fp32", "fp64"]))
def test_buckets_are_runs_of_layers_from_the_end_posted_where_backward_has_filled_them(
    bucket, precision
):
    model = EXPERIMENT.model
    changes = {"strategy.devices_per_node": 4, "strategy.bucket": bucket}
    program = parallel.program(EXPERIMENT.set({**changes, "strategy.precision": precision}))
    stage = stage_program(program, GROUPS, 0, Part(model, 0))
    element = {"fp16": 2, "fp32": 4, "fp64": 8}[precision]
    todo, done, sizes = list(stage.buckets), len(model.layers), []
    for what in stage.order.last:
        if isinstance(what, Compute):
            done = what.layer
        else:
            first, stop = todo.pop(0)
            assert what.layers == (0, first, stop) and done == first
            sizes.append(element * sum(layer.parameters for layer in model.layers[first:stop]))
    assert not todo and sum(sizes) == element * model.parameters
    assert all(size >= bucket for size in sizes[:-1])


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


def exchange_with(tests, log):
    gradients = np.zeros(10)
    sums = [Slow(number, each, log) for number, each in enumerate(tests)]
    return Exchange(gradients, BOUNDS, sums, gradients, Recorder())


@given(tests=st.lists(st.integers(1, 6), min_size=4, max_size=4), layers=st.integers(0, 3))
def test_buckets_are_launched_when_posted_in_order_and_one_at_a_time(tests, layers):
    log = []
    exchange = exchange_with(tests, log)
    for _ in range(2):  # steps
        log.clear()
        for posted in range(4):
            exchange.post(posted)
            assert all(number <= posted for _, number in log), "launched before it was full"
            for _ in range(layers):
                exchange.progress()
        exchange.finish()
        expected = [(what, number) for number in range(4) for what in ("start", "end")]
        assert log == expected


def test_the_first_bucket_is_done_before_backward_ends():
    log = []
    exchange = exchange_with([1, 1, 1, 1], log)
    exchange.progress()
    assert not log
    exchange.post(0)
    assert log == [("start", 0)]
    exchange.progress()
    assert log == [("start", 0), ("end", 0)]


def test_all_bytes_sent_are_counted_and_recorded():
    exchange = exchange_with([1, 1, 1, 1], [])
    for number in range(4):
        exchange.post(number)
    exchange.finish()
    assert exchange.recorder.sent == 10 * 8
    rows = {name: size for _, _, name, _, _, size, _ in exchange.recorder.rows}
    assert rows == {"bucket 1": 16, "bucket 2": 24, "bucket 3": 8, "bucket 4": 32}


@pytest.mark.parametrize(("precision", "element"), [("fp16", 2), ("fp32", 4), ("fp64", 8)])
def test_the_wire_has_the_requested_precision(precision, element):
    comm = pytest.importorskip("mpi4py.MPI").COMM_SELF
    changes = {"strategy.precision": precision, "training.collective": "mpi"}
    gradients = np.linspace(-1, 1, Network(EXPERIMENT.model).gradients.size)
    gradients = gradients.astype(np.float64 if precision == "fp64" else np.float32)
    before, bounds = gradients.copy(), [(100, gradients.size), (0, 100)]
    recorder = Recorder()
    with exchange_of(EXPERIMENT.set(changes), gradients, comm, recorder, bounds) as exchange:
        for number in range(2):
            exchange.post(number)
        exchange.finish()
    rounded = before.astype(f"f{element}").astype(gradients.dtype)
    assert (gradients == rounded).all()
    assert recorder.sent == element * gradients.size
