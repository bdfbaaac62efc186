"""Readers: batches in their order, no further ahead than asked for; the stall is that of the tier."""

import threading
from time import perf_counter, process_time

import numpy as np
import pytest

from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.input.readers import AHEAD, Readers
from lib_dlhpc.training.input.sample_files import SampleFiles
from lib_dlhpc.training.input.source import readers_of
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.trainer import train

RUN = Experiment(
    model="mlp-digits",
    dataset={"name": "digits", "samples": 50, "bytes": "50 kB", "files": 50},
    machine={
        "name": "laptop",
        "jitter": 0.0,
        "storage": {"slow": {"scope": "node", "bandwidth": "1 TB/s"}},
    },
    strategy={"devices_per_node": 1, "batch": 10},
    storage={"tier": "slow"},
    run={"epochs": 2},
)
X = np.random.default_rng(0).random((40, 64), np.float32)


def batches(number, size=5):
    draw = np.random.default_rng(3)
    return [draw.permutation(40)[:size] for _ in range(number)]


def reading(changes, order):
    return readers_of(RUN.set(changes), SingleRank(), X, None, iter(order), True)


@pytest.mark.parametrize("readers", [0, 1, 3])
@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_batches_come_in_their_order_whoever_reads_them(readers, ahead):
    order = [*batches(12), np.array([], int)]
    changes = {"storage.workers": readers, "storage.prefetch": ahead}
    with reading(changes, order) as source:
        for indices in order[:-1]:
            assert np.array_equal(source.take().x, X[indices])
        assert len(source.take().indices) == 0


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_no_batch_is_read_further_ahead_than_asked_for(ahead, monkeypatch):
    read, original = [], SampleFiles.read
    monkeypatch.setattr(
        SampleFiles, "read", lambda self, sample: read.append(sample) or original(self, sample)
    )
    order = batches(30)
    with reading({"storage.prefetch": ahead}, order) as source:
        for taken in range(1, 5):
            source.take()
            settled = threading.Event()
            while len(read) < 5 * (taken + (ahead or AHEAD)):
                settled.wait(0.01)
            settled.wait(0.05)
            assert len(read) == 5 * (taken + (ahead or AHEAD))
    assert sorted(read) == sorted(np.concatenate(order[: 4 + (ahead or AHEAD)]).tolist())


def test_decoding_takes_the_cpu_time_that_is_priced():
    order = batches(4)
    begin = process_time()
    with reading(
        {"storage.decode": 0.02, "storage.workers": 2, "storage.prefetch": 1}, order
    ) as source:
        for _ in order:
            source.take()
    assert process_time() - begin >= 20 * 0.02


def test_time_that_does_not_count_gives_readers_no_head_start():
    """As an evaluation between two steps: the tier is as slow before and after it, by the clock of the steps."""
    order, left_out = batches(6), [0.0]
    slow = RUN.set({"machine.storage.slow.bandwidth": 100e3})  # 50 ms a batch

    def clock():
        return perf_counter() - left_out[0]

    with readers_of(slow, SingleRank(), X, None, iter(order), True, clock) as source:
        begin = source.take().ordered  # as are all of them, and none is read before
        threading.Event().wait(0.5)
        left_out[0] = 0.5
        for _ in order[1:]:
            source.take()
        assert clock() - begin >= 0.99 * 0.01 * (5 * len(order) - 1)  # the first sample is free


def test_an_error_of_a_reader_is_raised_by_the_step_that_waits(tmp_path):
    with readers_of(RUN, SingleRank(), X, tmp_path, iter(batches(20)), True) as source:
        for path in (tmp_path / "dataset").glob("*/*"):
            path.unlink()
        with pytest.raises(FileNotFoundError, match="dataset"):
            for _ in range(20):
                source.take()
    assert not list(tmp_path.iterdir())


def test_a_rank_that_stops_early_does_not_wait_for_its_readers():
    slow = {"machine.storage.slow.read_latency": 1e6, "storage.workers": 2}
    with reading(slow, batches(3)):
        pass
    assert not [each for each in threading.enumerate() if each.name.startswith("reader")]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"storage.format": "packed"},
        {"training.shift": 1, "model.name": "cnn-digits"},
        {"storage.workers": 2, "storage.prefetch": 1},
        {"storage.cache": 20e3, "run.epochs": 2.5},
    ],
)
def test_a_run_that_reads_is_the_run_in_memory_and_reads_each_sample_once_an_epoch(
    changes, monkeypatch
):
    read, original = [], SampleFiles.read
    monkeypatch.setattr(
        SampleFiles, "read", lambda self, sample: read.append(sample) or original(self, sample)
    )
    run = RUN.set(changes)
    found = train(run, SingleRank())
    memory = train(run.set({"storage.tier": ""}), SingleRank())
    assert np.array_equal(found.network.weights, memory.network.weights)
    assert found.test_loss == memory.test_loss
    assert np.bincount(read, minlength=40).max() <= 3 and len(read) == found.samples
    assert set(read) == set(range(40))


def test_it_trains_on_what_the_files_say(tmp_path, monkeypatch):
    original = SampleFiles.read
    before = train(RUN, SingleRank()).network.weights
    monkeypatch.setattr(SampleFiles, "read", lambda self, sample: original(self, sample) * 2)
    assert not np.array_equal(before, train(RUN, SingleRank()).network.weights)


def test_a_resumed_run_reads_on_where_it_ended(tmp_path):
    whole = train(RUN, SingleRank())
    train(RUN.set({"run.epochs": 1.0}), SingleRank(), tmp_path)
    resumed = train(RUN, SingleRank(), tmp_path)
    assert np.array_equal(whole.network.weights, resumed.network.weights)


def test_the_stall_is_predicted_simulated_and_measured(monkeypatch):
    """No step is faster than the tier; the shortest wait is that of a step that nobody disturbed."""
    came, take = [], Readers.take

    def noted(self):
        batch = take(self)
        came.append(self._clock() - batch.ordered)  # all of them are ordered before the first step
        return batch

    monkeypatch.setattr(Readers, "take", noted)
    run = RUN.set({"machine.storage.slow.bandwidth": 50e3})  # 0.2 s a step
    predicted = float(predict(run).input_stall)
    simulated = breakdown(simulate(run, steps=10)).terms["input stall"]
    measured = train(run, SingleRank()).timeline
    rows = measured.select(measured.where("compute", "input"))
    waits = [row.stop - row.start for row in rows if row.name == "wait for input"]
    assert len(waits) == 8
    assert predicted == pytest.approx(0.2, rel=0.05) == simulated
    assert len(came) == 8
    for number, after in enumerate(came, 1):
        assert after >= 0.99 * (10 * number - 1) / 10 * predicted  # the first sample is free
    assert min(waits[1:]) <= 1.2 * predicted


@pytest.mark.parametrize("field", ["workers", "prefetch"])
def test_more_readers_and_more_batches_ahead_are_never_slower(field):
    slow = RUN.set({"storage.decode": 0.01, "storage.workers": 4, "storage.prefetch": 4})
    slow = slow.set({"machine.storage.slow.read_latency": 0.01})
    times = [float(predict(slow.set({f"storage.{field}": n})).step_time) for n in range(1, 9)]
    assert times == sorted(times, reverse=True) and times[0] > times[-1]
    assert float(predict(slow.set({f"storage.{field}": 0})).step_time) <= times[-1]
