"""Laws of stages: any partition, with microbatches in flight, equals the full network."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from layer_references import samples_of

from lib_dlhpc.layers.receive import Receive
from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training import graph
from lib_dlhpc.training.loss import mean_squared_error
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.weights import InMemory

from .test_network import ENDS, MODELS, targets_of

NAMES = [*MODELS, "flat, of tanh", "dropout", "relu", "flatten"]
ORDERS = {
    "all forward, then all back": ["f0 f1 f2 b0 b1 b2", (0, 1, 2)],
    "back the other way": ["f0 f1 f2 b2 b1 b0", (0, 1, 2)],
    "one forward, one back": ["f0 f1 b0 f2 b1 b2", (0, 1, 0)],  # the third in the slot of the first
    "one at a time": ["f0 b0 f1 b1 f2 b2", (0, 0, 0)],
}


def stages_of(model, cuts):
    """Return (local model, sends) of each stage; what is live at a boundary is sent, tied ones get the table."""
    layers, found, received = model.layers, [], ()
    for first, stop in pairwise([0, *cuts, len(layers)]):
        before = {layer.name for layer in layers[:stop]}
        later = {name for layer in layers[stop:] for name in layer.inputs}
        sends = tuple(layer.name for layer in layers[:stop] if layer.name in later & before)
        by_name = {layer.name: layer for layer in layers}
        places = [
            Layer(name, "receive", (), by_name[name].output_shape, by_name[name].output_shape)
            for name in received
        ]
        tied = {layer.attributes.get("tied") for layer in layers[first:stop]} - {None, ""}
        elsewhere = (layer for layer in layers[:first] if layer.name in tied)
        tables = [replace(layer, kind="table", inputs=()) for layer in elsewhere]
        found.append((replace(model, layers=(*tables, *places, *layers[first:stop])), sends))
        received = sends
    return found


class Pipeline:
    """All stages in one process. Every message reuses the buffer of the previous one."""

    def __init__(self, model, cuts, seed=1, **options):
        self.stages = [
            Network(local, np.float64, seed, sends, model, **options)
            for local, sends in stages_of(model, cuts)
        ]
        self.buffers = {}
        self.starts = [[] for _ in self.stages]

    def deliver(self, stage, way, sent):
        for name, array in sent.items():
            assert array.flags.c_contiguous
            shape = self.buffers.get((stage, way, name), np.empty(0)).shape
            if shape != array.shape:
                self.buffers[stage, way, name] = np.empty_like(array)
            self.buffers[stage, way, name][...] = array
        return {name: self.buffers[stage, way, name] for name in sent}

    def forward(self, slot, x, training=True):
        sent = {}
        for number, stage in enumerate(self.stages):
            reads = any("input" in layer.inputs for layer in stage.model.layers)
            given = self.deliver(number, "forward", sent)
            sent = stage.run(slot, x if reads else None, given, training)
            for buffer in given.values():
                buffer.fill(np.nan)
        (y,) = sent.values()
        return y

    def back(self, slot, dy):
        sent = {self.stages[-1].gives[0]: dy}
        for number in reversed(range(len(self.stages))):
            done = self.starts[number].append
            last = number == len(self.stages) - 1
            given = sent if last else self.deliver(number, "back", sent)
            sent = self.stages[number].back(slot, given, done)
            for buffer in () if last else given.values():
                buffer.fill(np.nan)
        assert not sent

    def step(self, x, targets, batches, order, slots):
        """Return loss and gradients by name."""
        for stage in self.stages:
            stage.gradients.fill(np.nan)
            stage.begin_step(batches)
        ends, loss, dys = np.cumsum([0, *batches]), 0.0, {}
        for what, number in order.split():
            number = int(number)
            part = slice(*ends[number : number + 2])
            if what == "f":
                for stage in self.stages:
                    stage.context.first_sample = int(part.start)
                y = self.forward(slots[number], x[part])
                share, dys[number] = mean_squared_error(y, targets[part], len(x))
                loss += share
            else:
                for stage in self.stages:
                    stage.context.first_sample = -1  # not this microbatch's
                self.back(slots[number], dys.pop(number))
        return loss, self.by_name("gradients")

    def by_name(self, what):
        """Return all tensors; copies of one weight have one gradient, their sum."""
        found = {}
        for stage in self.stages:
            for each in stage.parameters:
                part = getattr(stage, what)[each.start : each.stop].reshape(each.shape)
                again = what == "gradients" and each.name in found
                found[each.name] = found[each.name] + part if again else part
        return found


def whole_step(model, x, targets, steps=1):
    one = Network(model, np.float64, 1)
    one.context.step = 2
    for _ in range(steps):
        loss, dy = mean_squared_error(one.forward(x), targets, len(x))
        one.backward(dy)
    tensors = {
        each.name: one.gradients[each.start : each.stop].reshape(each.shape)
        for each in one.parameters
    }
    return loss, tensors


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    scale = max((np.abs(array).max() for array in expected.values()), default=0)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-12, atol=1e-12 * scale, err_msg=name)


def check(name, cuts, order):
    model = (MODELS | ENDS)[name]
    x, targets = samples_of(model, 6), targets_of(name, 6)
    expected_loss, expected = whole_step(model, x, targets)
    pipeline = Pipeline(model, cuts)
    for stage in pipeline.stages:
        stage.context.step = 2
    for _ in range(3):  # fresh memory, profiled memory, planned memory
        loss, gradients = pipeline.step(x, targets, (3, 1, 2), *ORDERS[order])
        assert loss == pytest.approx(expected_loss, rel=1e-12)
        assert_same(gradients, expected)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cut", range(4))
@pytest.mark.parametrize("name", NAMES)
def test_stages_with_microbatches_equal_one_rank(name, cut, order):
    many = len((MODELS | ENDS)[name].layers)
    check(name, [(), (many // 2,), (1, many - 1), tuple(range(1, many))][cut], order)


def test_one_microbatch_is_written_and_not_added(monkeypatch):
    """A step of one microbatch allocates no extra memory for gradients."""
    monkeypatch.setattr(InMemory, "written", lambda *_: None)
    model = MODELS["residual"]
    x, targets = samples_of(model, 6), targets_of("residual", 6)
    assert_same(whole_step(model, x, targets)[1], whole_step(model, x, targets, steps=2)[1])


@pytest.mark.parametrize("name", ["mlp", "gpt", "tied twice"])
def test_gradients_are_done_in_the_last_pass_back_only(name):
    model, targets = MODELS[name], targets_of(name, 6)
    pipeline = Pipeline(model, ())
    (stage,) = pipeline.stages
    reported = []
    pipeline.starts[0] = type(
        "",
        (),
        {"append": lambda self, start: reported.append((start, stage.gradients[start:].copy()))},
    )()
    pipeline.step(samples_of(model, 6), targets, (3, 1, 2), *ORDERS["one forward, one back"])
    starts = [start for start, _ in reported]
    assert starts == sorted(set(starts), reverse=True) and starts[-1] == 0
    for start, part in reported:
        np.testing.assert_array_equal(part, stage.gradients[start:])


@pytest.mark.parametrize("name", ["residual", "images", "gpt"])
def test_a_microbatch_in_flight_survives_an_evaluation(name):
    model, targets = MODELS[name], targets_of(name, 6)
    x = samples_of(model, 6)
    pipeline = Pipeline(model, (len(model.layers) // 2,))
    expected = Network(model, np.float64, 1).forward(x, training=False)
    for _ in range(3):
        np.testing.assert_array_equal(pipeline.forward("test", x, training=False), expected)
    for stage in pipeline.stages:
        assert not any(saved.values for own in stage._passes.values() for saved in own.saved)
    before = pipeline.step(x, targets, (3, 3), "f0 f1 b0 b1", (0, 1))[1]
    before = {key: array.copy() for key, array in before.items()}
    pipeline.forward(0, x, training=False)
    assert_same(pipeline.step(x, targets, (3, 3), "f0 f1 b0 b1", (0, 1))[1], before)


def test_sent_activations_are_unchanged_until_backward():
    model = MODELS["residual"]
    for cut in range(1, len(model.layers)):
        pipeline = Pipeline(model, (cut,))
        first = pipeline.stages[0]
        first.begin_step((3,))
        sent = first.run(0, samples_of(model, 3))
        copies = {name: array.copy() for name, array in sent.items()}
        second = pipeline.stages[1]
        second.begin_step((3,))
        second.run(0, None, sent)
        for name, array in sent.items():
            np.testing.assert_array_equal(array, copies[name])
            array.flags.writeable = False


def test_forwarded_activations_are_unchanged():
    model = MODELS["residual"]
    shape = model.layers[0].output_shape
    layers = (Layer("source", "receive", (), shape, shape),)
    stage = Network(replace(model, layers=layers), np.float64, 0, ("source",))
    x, dy = np.random.default_rng(0).normal(size=(2, *shape, 4))
    stage.begin_step((4,))
    (y,) = stage.run(0, None, {"source": x}).values()
    np.testing.assert_array_equal(y, x)
    (dx,) = stage.back(0, {"source": dy}).values()
    np.testing.assert_array_equal(dx, dy)
    for a, b in [(x, y), (dy, dx)]:
        assert not np.shares_memory(a, b)


def test_initial_weights_do_not_depend_on_the_partition():
    for name in ("gpt", "tied twice", "residual", "lstm"):
        whole = Network(MODELS[name], np.float32, 7)
        expected = {p.name: whole.weights[p.start : p.stop] for p in whole.parameters}
        for cut in range(1, len(MODELS[name].layers)):
            for local, sends in stages_of(MODELS[name], (cut,)):
                stage = Network(local, np.float32, 7, sends, MODELS[name])
                for p in stage.parameters:
                    np.testing.assert_array_equal(
                        stage.weights[p.start : p.stop], expected[p.name], err_msg=p.name
                    )


# -- errors --------------------------------------------------------------------------------


def test_unannounced_slots_and_microbatches_are_refused():
    stage = Pipeline(MODELS["mlp"], (2,)).stages[0]
    x = samples_of(MODELS["mlp"], 2)
    with pytest.raises(RuntimeError, match="microbatch 0: is one too many; a step begins with"):
        stage.run(0, x)
    stage.begin_step((2, 2))
    ((name, y),) = stage.run(0, x).items()
    with pytest.raises(RuntimeError, match="microbatch 0: is still in flight"):
        stage.run(0, x)
    with pytest.raises(
        RuntimeError, match=f"received gradients of other; expected those of {name}"
    ):
        stage.back(0, {"other": y})
    stage.back(0, {name: y})
    with pytest.raises(RuntimeError, match="needs a forward pass in training"):
        stage.back(0, {name: y})
    stage.run(0, x)
    with pytest.raises(RuntimeError, match="microbatch 1: is one too many"):
        stage.run(1, x)


# -- the tests can fail -----------------------------------------------------------------------------


def test_a_reference_to_the_buffer_of_a_message_is_found(monkeypatch):
    monkeypatch.setattr(Receive, "forward", lambda layer, weights, saved, x: x)
    with pytest.raises(AssertionError):
        check("residual", (2,), "one at a time")


def test_overwritten_gradients_are_found(monkeypatch):
    monkeypatch.setattr(InMemory, "target", lambda store, index: store._gradients[index])
    with pytest.raises(AssertionError):
        check("mlp", (), "one at a time")


def test_an_overwritten_send_buffer_is_found(monkeypatch):
    right = graph.flags
    monkeypatch.setattr(graph, "flags", lambda model, sends, segments: right(model, (), segments))
    with pytest.raises(AssertionError):
        check("residual", (2,), "one at a time")
