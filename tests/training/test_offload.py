"""Laws of training out of core: results are bitwise equal, and memory stays under the cap."""

import errno
import os
import subprocess
import sys
import tempfile
import tracemalloc
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from layer_references import samples_of

from lib_dlhpc.costs.offload import offload_traffic
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.networks import build
from lib_dlhpc.spec.training import Training
from lib_dlhpc.training import activation_offload, disk
from lib_dlhpc.training.disk import Disk
from lib_dlhpc.training.loss import mean_squared_error
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.offload import offloaded
from lib_dlhpc.training.on_disk import OnDisk
from lib_dlhpc.training.optimizers import MEMORIES, RULES, Optimizer

from .test_network import ALL, targets_of
from .test_recompute import BLOCKS, assert_equal
from .test_stages import ORDERS, Pipeline

MODELS = ALL | BLOCKS
TRAINING = Training(weight_decay=0.01)


@pytest.fixture
def all_arrays(monkeypatch):
    """Offload even the smallest arrays."""
    monkeypatch.setattr(activation_offload, "SMALL", 0)


def steps(model, what, folder, rule="momentum", order="one forward, one back", count=3, **options):
    """Return losses, statistics, weights and optimizer state of some steps."""
    batches, (words, slots) = (3, 1, 2), ORDERS[order]
    ends, found = np.cumsum([0, *batches]), []
    optimizer = Optimizer(rule, TRAINING)
    x = samples_of(model, 6)
    targets = np.random.default_rng(8).normal(size=(6, *model.output_shape))
    with offloaded(what, folder, optimizer) as store:
        network = Network(model, np.float64, 1, **options, **store)
        for step in range(count):
            network.context.step = step
            network.begin_step(batches)
            if what == "all":
                network.store.rate = 0.02 / (step + 1)
            dys = {}
            for word, number in words.split():
                number = int(number)
                part = slice(*ends[number : number + 2])
                network.context.first_sample = int(part.start) if word == "f" else -1
                if word == "f":
                    (y,) = network.run(slots[number], x[part]).values()
                    loss, dys[number] = mean_squared_error(y, targets[part], len(x))
                    found.append(np.array(loss))
                else:
                    network.back(slots[number], {network.gives[0]: dys.pop(number)})
            if what != "all":
                optimizer.update(network, 0.02 / (step + 1))
            found.append(network.statistics.copy())
            found.append(network.forward(x, training=False).copy())
        size = network.table.size
        for column in ("weights", *MEMORIES[rule]):
            own = network.weights if column == "weights" and what != "all" else None
            if what == "all":
                own = network.store.read(column, 0, size)
            elif column != "weights":
                own = optimizer.memory(column, network)
            found.append(own.copy())
        assert optimizer.updates == count
    assert not list(folder.iterdir())
    return found


@cache
def in_core(name, rule="momentum", order="one forward, one back"):
    """Return what the steps of a model give in memory."""
    with tempfile.TemporaryDirectory() as folder:
        return steps(MODELS[name], "none", Path(folder), rule, order)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("what", ["activations", "all"])
@pytest.mark.parametrize("name", MODELS)
def test_out_of_core_changes_no_bit(name, what, recompute, tmp_path, all_arrays):
    expected = in_core(name)
    assert_equal(steps(MODELS[name], what, tmp_path, recompute=recompute), expected)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["gpt", "tied twice", "normalized"])
def test_every_rule_and_order_moves_weights_alike(name, rule, order, tmp_path, all_arrays):
    expected = in_core(name, rule, order)
    assert_equal(steps(MODELS[name], "all", tmp_path, rule, order), expected)


def test_large_arrays_are_offloaded_and_small_ones_stay(tmp_path, monkeypatch):
    model = build("mlp", {"widths": [64] * 6, "activation": "tanh"})
    written = []
    write = Disk.write
    monkeypatch.setattr(
        Disk, "write", lambda one, at, a: written.append(a.nbytes) or write(one, at, a)
    )
    for batch, pieces in [(63, 0), (64, 4)]:  # 64 * 64 * 8 B = 32 KiB
        written.clear()
        with offloaded("activations", tmp_path, Optimizer("sgd", TRAINING)) as options:
            network = Network(model, np.float64, **options)
            for _ in range(2):
                network.backward(network.forward(samples_of(model, batch)))
        # tanh saves what the next layer reads: written once. The samples stay in memory.
        assert written == [32 * 1024] * pieces * 2


def test_file_offsets_are_reused(tmp_path, all_arrays, monkeypatch):
    ends, write = [], Disk.write
    monkeypatch.setattr(
        Disk, "write", lambda one, at, a: ends.append(at + a.nbytes) or write(one, at, a)
    )
    model = MODELS["residual"]
    with offloaded("activations", tmp_path, Optimizer("sgd", TRAINING)) as options:
        network, most = Network(model, np.float64, **options), []
        for step in range(8):
            ends.clear()
            network.begin_step((3, 2))
            ys = [network.run(slot, samples_of(model, n)) for slot, n in enumerate((3, 2))]
            for slot, y in enumerate(ys if step % 2 else ()):  # every second pass is dropped
                network.back(slot, y)
            most.append(max(ends))
    assert max(most[1:]) == most[0]


def test_two_passes_in_flight_are_separate(tmp_path, all_arrays):
    model = MODELS["images"]
    x, y = samples_of(model, 3, seed=1), samples_of(model, 3, seed=2)
    found = []
    for what in ("none", "activations"):
        with offloaded(what, tmp_path, Optimizer("sgd", TRAINING)) as options:
            network = Network(model, np.float64, **options)
            for _ in range(3):
                network.begin_step((3, 3))
                network.run("a", x)
                network.run("b", y)
                for slot, fill in (("a", 1.0), ("b", 2.0)):
                    network.back(slot, {network.gives[0]: np.full((3, 3), fill)})
                found.append(network.gradients.copy())
    assert_equal(found[:3], found[3:])


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("name", ["residual", "gpt", "one vector, three readers"])
def test_stages_offload_as_well(name, recompute, tmp_path, all_arrays):
    model, found = MODELS[name], []
    x, targets = samples_of(model, 6), targets_of(name, 6)
    for what in ("none", "activations"):
        with ExitStack() as stack:
            options = {"recompute": recompute}
            if what == "activations":  # one file each
                options["offload"] = lambda arena, stack=stack: (
                    activation_offload.ActivationOffload(
                        stack.enter_context(Disk(tmp_path, "activations")), arena
                    )
                )
            pipeline = Pipeline(model, (3, 6), **options)
            for _ in range(3):
                order = ORDERS["one forward, one back"]
                loss, gradients = pipeline.step(x, targets, (3, 1, 2), *order)
                found.append([np.array(loss), *(array.copy() for array in gradients.values())])
    for a, b in zip(found[:3], found[3:], strict=True):
        assert_equal(a, b)


def test_columns_are_read_and_written_between_steps(tmp_path):
    model, values = MODELS["gpt"], None
    for what in ("none", "all"):
        optimizer = Optimizer("adam", TRAINING)
        with offloaded(what, tmp_path, optimizer) as options:
            network = Network(model, np.float64, 3, **options)
            if what == "none":
                values = np.random.default_rng(0).normal(size=network.weights.size)
                network.weights[10:-7] = values[10:-7]
                expected = network.forward(samples_of(model, 2), training=False)
                continue
            assert network.store.columns == ("weights", "first", "second", "gradients")
            network.store.write("weights", 10, values[10:-7])
            found = network.forward(samples_of(model, 2), training=False)
            np.testing.assert_array_equal(found, expected)
            assert not network.store.read("second", 0, values.size).any()
            network.store.write("second", 5, values[5:9])
            part = network.store.read("second", 4, 10)
            np.testing.assert_array_equal(part, [0, *values[5:9], 0])


def test_gradients_can_be_allreduced_before_the_update(tmp_path):
    model = MODELS["gpt"]
    for what in ("none", "all"):
        optimizer = Optimizer("momentum", TRAINING)
        with offloaded(what, tmp_path, optimizer) as options:
            network = Network(model, np.float64, 3, **options)
            y = network.forward(samples_of(model, 2))
            if what == "none":
                network.backward(y)
                expected = network.weights.copy()
                size, gradient = network.table.size, network.gradients * 3
                network.gradients *= 3
                optimizer.update(network, 0.1)
                expected = network.weights.copy()
                continue
            seen, reported = np.full(size, np.nan), []

            def complete(layer, own, seen=seen, reported=reported, network=network):
                own *= 3  # as if three ranks had the same
                start = min(p.start for p in network.parameters if p.layer == layer)
                seen[start : start + own.size] = own
                reported.append(layer)

            network.store.rate, network.store.complete = 0.1, complete
            network.backward(y)
            assert reported == sorted(set(reported), reverse=True)
            np.testing.assert_array_equal(seen, gradient)
            np.testing.assert_array_equal(network.store.read("weights", 0, size), expected)


# -- memory -----------------------------------------------------------------------------------------

RUN = """
import sys
from pathlib import Path
import numpy as np
from lib_dlhpc.costs.offload import offload_traffic
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.networks import build
from lib_dlhpc.spec.training import Training
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.offload import offloaded
from lib_dlhpc.training.optimizers import Optimizer

def peak():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])

what, width, depth, batch, rule = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
ones = np.ones((256, 256), np.float32)
ones @ ones  # the BLAS library allocates its buffers
del ones
before = peak()
model = build("mlp", {"widths": [width] * depth + [10], "activation": "tanh"})
optimizer = Optimizer(rule, Training())
with offloaded(what, Path(sys.argv[6]), optimizer) as options:
    network = Network(model, np.float32, 0, **options)
    x = np.random.default_rng(0).random((batch, width), np.float32)
    y = np.arange(batch) % 10
    for _ in range(2):  # the second has all there is: gradients, and the state of the optimizer
        loss, dy = softmax_cross_entropy(network.forward(x), y, batch)
        if what == "all":
            network.store.rate = 0.01
        network.backward(dy)
        del dy
        if what != "all":
            optimizer.update(network, 0.01)
print(loss.hex(), peak() - before)
"""


def resident(what, width, depth, batch, rule, folder):
    """Return the loss, and by how much a process grew that trained."""
    command = [sys.executable, "-c", RUN, what, str(width), str(depth), str(batch), rule, folder]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    loss, grown = done.stdout.split()
    return loss, int(grown)


measured = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")


@measured
@pytest.mark.parametrize("rule", ["momentum", "adam"])
def test_a_network_of_more_than_twice_the_cap_is_trained_under_it(rule, tmp_path):
    layer = 4 * 1024 * 1024
    network = 15 * layer * (2 + len(MEMORIES[rule]))  # weights, gradients, optimizer state
    cap = layer * (9 if rule == "momentum" else 12)
    assert network > 2 * cap
    loss, inside = resident("none", 1024, 16, 8, rule, str(tmp_path))
    assert inside > network
    found, outside = resident("all", 1024, 16, 8, rule, str(tmp_path))
    assert found == loss
    assert outside < cap


@measured
def test_offloaded_activations_of_a_deep_network_use_the_memory_of_a_few_layers(tmp_path):
    layer = 4 * 2048 * 256
    loss, inside = resident("none", 256, 41, 2048, "sgd", str(tmp_path))
    assert inside > 40 * layer
    found, outside = resident("activations", 256, 41, 2048, "sgd", str(tmp_path))
    assert found == loss
    weights = 2 * 41 * 4 * 256 * 256
    assert outside - weights < 12 * layer


def test_planned_memory_is_that_of_a_few_layers(tmp_path):
    """Counted by the arrays that numpy allocates, over the whole run."""
    model, layer = build("mlp", {"widths": [256] * 30, "activation": "tanh"}), 256 * 256 * 4
    for what, most in (("none", np.inf), ("all", 12 * layer)):
        tracemalloc.start()
        optimizer = Optimizer("momentum", TRAINING)
        with offloaded(what, tmp_path, optimizer) as options:
            network = Network(model, np.float32, **options)
            for _ in range(3):
                y = network.forward(samples_of(model, 64, dtype=np.float32))
                if what == "all":
                    network.store.rate = 0.01
                network.backward(y)
                del y
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most
        assert what == "all" or peak > 29 * 2 * layer


# -- errors --------------------------------------------------------------------------------


def train_once(what, folder):
    optimizer = Optimizer("momentum", TRAINING)
    with offloaded(what, folder, optimizer) as options:
        network = Network(MODELS["gpt"], np.float64, **options)
        if what == "all":
            network.store.rate = 0.1
        network.backward(network.forward(samples_of(MODELS["gpt"], 2)))


@pytest.mark.parametrize("what", ["activations", "all"])
def test_a_full_disk_ends_the_run_and_names_the_file(what, tmp_path, all_arrays, monkeypatch):
    left, write = [20], os.pwritev

    def fills_up(file, parts, place):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, parts, place)

    monkeypatch.setattr(os, "pwritev", fills_up)
    with pytest.raises(OSError, match="No space left on device") as caught:
        train_once(what, tmp_path)
    assert caught.value.filename.startswith(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_truncated_file_is_reported(tmp_path, all_arrays, monkeypatch):
    read = os.preadv
    monkeypatch.setattr(os, "preadv", lambda f, b, at: os.ftruncate(f, 0) or read(f, b, at))
    with pytest.raises(OSError, match=r"ended after 0 B of \d+ B"):
        train_once("all", tmp_path)


@pytest.mark.parametrize("what", ["activations", "all"])
def test_a_thread_that_ends_does_not_hang_the_run(what, tmp_path, all_arrays, monkeypatch):
    monkeypatch.setattr(disk, "LOOK", 0.01)

    def ends(one):
        while one._done < 20 and (job := one._jobs.get()) is not None:
            one._move(job)
            one._done += 1

    monkeypatch.setattr(Disk, "_work", ends)
    with pytest.raises(RuntimeError, match=rf"{tmp_path}.* has ended"):
        train_once(what, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_update_on_disk_needs_a_rate(tmp_path):
    with offloaded("all", tmp_path, Optimizer("sgd", TRAINING)) as options:
        network = Network(MODELS["mlp"], np.float64, **options)
        y = network.forward(samples_of(MODELS["mlp"], 2))
        with pytest.raises(RuntimeError, match=r"set store\.rate before"):
            network.backward(y)
        assert not hasattr(network, "weights")


# -- the tests can fail -----------------------------------------------------------------------------


def test_reused_memory_mistaken_for_the_same_array_is_found(tmp_path, all_arrays, monkeypatch):
    """An address identifies an array only as long as it is alive."""

    def same(offloaded, array):
        return offloaded.known.get(activation_offload._address(array), (None, None))[1]

    monkeypatch.setattr(activation_offload, "_known", same)
    with pytest.raises(AssertionError), np.errstate(all="ignore"):
        for name in MODELS:
            test_out_of_core_changes_no_bit(name, "activations", "none", tmp_path, None)


def test_gradients_of_passes_that_are_not_added_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(OnDisk, "begin", lambda store, passes: store._rest())
    with pytest.raises(AssertionError):
        test_every_rule_and_order_moves_weights_alike(
            "normalized", "sgd", "one at a time", tmp_path, None
        )


def test_weights_that_stay_in_memory_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(OnDisk, "_forget", lambda store, but: None)
    with pytest.raises(AssertionError):
        test_planned_memory_is_that_of_a_few_layers(tmp_path)


@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("microbatches", [1, 3])
def test_the_disk_traffic_of_a_step_is_the_predicted_one(tmp_path, monkeypatch, rule, microbatches):
    moved = {True: 0, False: 0}
    ask = Disk._ask

    def counted(own, writes, place, array):
        moved[writes] += array.nbytes * own.path.name.startswith("weights")
        return ask(own, writes, place, array)

    monkeypatch.setattr(Disk, "_ask", counted)
    strategy = {"offload": "all", "optimizer": rule, "microbatches": microbatches, "batch": 6}
    run = Experiment(
        model={"family": "mlp", "widths": [12, 40, 30, 20, 7]},
        dataset="digits",
        machine="laptop",
        strategy={"devices_per_node": 1, **strategy},
    )
    model, optimizer = run.model, Optimizer(rule, Training())
    with offloaded("all", tmp_path, optimizer) as store:
        network = Network(model, np.float32, 1, **store)
        moved |= {True: 0, False: 0}  # initial weights belong to no step
        network.begin_step([2] * microbatches)
        network.store.rate = 0.01
        for slot in range(microbatches):
            (y,) = network.run(slot, samples_of(model, 2).astype(np.float32)).values()
            network.back(slot, {network.gives[0]: y})
    traffic = offload_traffic(run, model.parameters, 0.0)
    out = microbatches * (traffic.forward_out + traffic.backward_out) + traffic.update_out
    back = microbatches * (traffic.forward_in + traffic.backward_in) + traffic.update_in
    assert (moved[True], moved[False]) == (pytest.approx(out), pytest.approx(back))
