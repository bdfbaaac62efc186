"""Asynchronous updates without ranks: refused options, staleness counts, rows of the timeline."""

from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import Place
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.training.check import check
from lib_dlhpc.training.groups import Groups
from lib_dlhpc.training.record import MOST_STEPS, Recorder
from lib_dlhpc.training.server import Asynchronous
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.staleness import Log, ServerTimes, WorkerTimes, add_rows
from lib_dlhpc.training.synchronous import stages_of

DIGITS = loads(
    """
    dataset = { name = "digits" }
    model = { name = "mlp-digits" }
    machine = { name = "laptop", nodes = 8 }
    strategy = { devices_per_node = 1, update = "asynchronous" }
    """
)


def rank_of(rank, ranks, servers=1, optimizer="momentum"):
    """One rank of a run without messages."""
    changes = {"strategy.servers": servers, "strategy.optimizer": optimizer}
    experiment = DIGITS.set({**changes, "strategy.precision": "fp64"})
    comm, alone, nothing = SimpleNamespace(rank=rank, size=ranks), SingleRank(), SimpleNamespace()
    groups = Groups(comm, Place(0, rank, 0, 0), alone, alone, alone, alone)
    common = (experiment, groups, Recorder())
    with ExitStack() as stack:
        stages = stages_of(*common, stack, None)
    return Asynchronous(experiment, groups, nothing, stages, nothing, common[2])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"strategy.optimizer": "lars", "strategy.servers": 2}, "strategy.servers = 2: lars needs"),
        ({"strategy.optimizer": "lamb", "strategy.servers": 3}, "the legal value is 1"),
        ({"strategy.precision": "fp16"}, "legal values: 'fp64', 'fp32'"),
        ({"training.normalization": "global"}, "the legal value is 'local'"),
        ({"training.sparsity": 0.9}, "not 'asynchronous'"),
    ],
)
def test_unsupported_options_are_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        check(DIGITS.set(changes))


@pytest.mark.parametrize("ranks, servers", [(1, 1), (2, 2), (2, 5)])
def test_a_run_needs_a_worker(ranks, servers):
    with pytest.raises(SpecError, match=f"leave no worker; start {servers + 1} or more"):
        rank_of(0, ranks, servers)


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_servers_together_update_all_weights_as_one_rank_does(servers, optimizer):
    """Some updates by every server on its part of the network; then the concatenated parts."""
    alone, rng = rank_of(1, 2, 1, optimizer), np.random.default_rng(0)
    every = [rank_of(1 + server, 1 + servers, servers, optimizer) for server in range(servers)]
    shards = [own._shard() for own in every]
    assert sum(shard.weights.size for shard in shards) == alone.network.weights.size
    for _ in range(3):
        gradients = rng.normal(size=alone.network.weights.size)
        alone.network.gradients[...] = gradients
        alone.optimizer.update(alone.network, 0.1)
        for own, shard, part in zip(every, shards, every[0].parts, strict=True):
            shard.gradients[...] = gradients[part]
            own.optimizer.update(shard, 0.1)
    together = np.concatenate([shard.weights for shard in shards])
    np.testing.assert_array_equal(together, alone.network.weights)


def test_updates_count_how_stale_they_were():
    log = Log(updates=[(0, 0), (1, 1), (0, 1), (1, 1), (2, 4)])
    updates = log.as_updates()
    assert updates.histogram.tolist() == [1, 3, 0, 0, 1]
    assert updates.as_dict() == {"mean": 1.4, "largest": 4, "histogram": [1, 3, 0, 0, 1]}
    assert Log().as_updates() is None


seconds = st.floats(0.0, 1.0)


@given(st.lists(seconds, min_size=5, max_size=5).map(sorted), st.floats(-0.5, 0.5))
def test_rows_are_in_order_whatever_the_clock_offset(times, ahead):
    """The server's clock may be off by anything: push, update and pull stay in order, inside of the step."""
    push, *served, pulled = times
    recorder = Recorder()
    add_rows(recorder, 3, [WorkerTimes(push, pulled)], [ServerTimes(*served)], ahead, 80)
    talk = [row for row in recorder.rows if row[0] == "communication"]
    assert [row[2] for row in talk] == ["push, worker 3", "pull, worker 3"]
    assert [size for *_, size, _ in talk] == [80, 80]
    for _, _, _, start, stop, *_ in recorder.rows:
        assert push <= start <= stop <= pulled
    compute = [(row[3], row[4]) for row in recorder.rows if row[0] == "compute"]
    assert sum(stop - start for start, stop in compute) == pytest.approx(pulled - push)


def test_a_long_run_has_rows_of_its_first_steps():
    recorder, many = Recorder(), MOST_STEPS + 50
    asked = [WorkerTimes(step, step + 0.9) for step in range(many)]
    served = [ServerTimes(step + 0.1, step + 0.2, step + 0.3) for step in range(many)]
    add_rows(recorder, 0, asked, served, 0.0, 8)
    assert sum(row[1] == "update" for row in recorder.rows) == MOST_STEPS
