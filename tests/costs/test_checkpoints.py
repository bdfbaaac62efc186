"""Laws of checkpoints: how many bytes, who writes them, how long training is blocked by one."""

import numpy as np
import pytest

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.costs.checkpoints import HASH_RATE, checkpoint_bytes, saving
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.run import CHECKPOINTS

RUN = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine={
        "name": "summit",
        "storage": {
            "fast": {"scope": "node", "bandwidth": "2 GB/s", "write_bandwidth": "1 GB/s"},
            "slow": {"bandwidth": "200 MB/s"},
        },
    },
    strategy={"nodes": 4},
    storage={"tier": "fast", "local": "fast"},
)
SIZE = checkpoint_bytes(RUN.model, "fp32", "momentum")
SHARED = RUN.set({"storage.tier": "slow"})


def test_a_checkpoint_is_weights_and_optimizer_state_written_by_one_node():
    assert SIZE == 8 * 25_557_032
    assert saving(RUN).size == saving(RUN).written == SIZE
    assert saving(RUN).blocked == pytest.approx(SIZE / 1e9)
    every_minute = predict(RUN.set({"run.checkpoint_interval": 60.0}))
    assert every_minute.step_time / predict(RUN).step_time == pytest.approx(1 + SIZE / 1e9 / 60)


@pytest.mark.parametrize(
    ("precision", "optimizer", "each"),
    [("fp16", "adam", 14), ("fp32", "adam", 12), ("fp32", "sgd", 4), ("fp16", "momentum", 10)],
)
def test_fourteen_bytes_a_parameter_and_its_variants(precision, optimizer, each):
    run = RUN.set({"strategy.precision": precision, "strategy.optimizer": optimizer})
    assert saving(run).size == each * run.model.parameters


def test_without_a_tier_there_is_nothing_to_write():
    nowhere = saving(RUN.set({"storage.tier": "", "storage.local": ""}))
    assert nowhere.blocked == nowhere.background == nowhere.written == 0


def test_all_nodes_write_their_parts_at_once_where_the_tier_takes_it():
    everyone = {"run.checkpoint_writers": "all"}
    assert saving(RUN.set(everyone)).blocked == pytest.approx(SIZE / 4 / 1e9)
    # A shared tier is as slow as it is, whoever writes; here slower than one node's way to it.
    assert saving(SHARED.set(everyone)).blocked == saving(SHARED).blocked == SIZE / 200e6
    # And it takes what is written as it gives what is read, where nothing else is said.
    assert saving(SHARED.set({"machine.storage.slow.write_bandwidth": 50e6})).blocked == SIZE / 50e6


def test_behind_their_network_cards_more_nodes_write_faster():
    fast = SHARED.set({"machine.storage.slow.bandwidth": 1e15})
    one, four = (
        saving(fast.set({"run.checkpoint_writers": who})).blocked for who in ("first", "all")
    )
    assert one == pytest.approx(4 * four)


def test_asynchronous_is_a_copy_and_then_a_write_behind_training():
    there = saving(SHARED.set({"run.checkpoint": "asynchronous"}))
    link = SHARED.machine.host_link
    assert there.blocked == pytest.approx(SIZE / (link.bandwidth * link.efficiency) + link.latency)
    assert there.background == saving(SHARED).blocked
    assert there.host_copy == SIZE
    parts = saving(SHARED.set({"run.checkpoint": "asynchronous", "run.checkpoint_writers": "all"}))
    assert parts.host_copy == SIZE / 4
    assert parts.blocked - link.latency == pytest.approx((there.blocked - link.latency) / (4 * 6))


def test_a_write_that_is_not_done_when_the_next_is_due_is_waited_for():
    there = saving(SHARED.set({"run.checkpoint": "asynchronous"}))
    assert there.standstill(there.background + 1) == there.blocked
    assert there.standstill(there.background / 4) == there.blocked + there.background * 3 / 4


def test_multilevel_stands_still_for_the_nodes_own_tier():
    levels = SHARED.set({"run.checkpoint": "multilevel", "machine.local_survival": 0.9})
    found = saving(levels)
    assert found.blocked == pytest.approx(SIZE / 1e9)
    assert found.background == saving(SHARED).blocked
    assert found.survived == 0.9
    assert found.restart - found.local_restart == pytest.approx(SIZE / 200e6 - SIZE / 2e9)
    with pytest.raises(SpecError, match=r"storage\.local"):
        saving(SHARED.set({"run.checkpoint": "multilevel", "storage.local": ""}))


def test_incremental_hashes_all_and_writes_what_has_changed():
    found = saving(SHARED.set({"run.checkpoint": "incremental", "run.changed": 0.01}))
    assert found.written == pytest.approx(SIZE / 100)
    assert found.blocked == pytest.approx(SIZE / HASH_RATE + SIZE / 100 / 200e6)
    assert found.size == SIZE
    assert found.restart == saving(SHARED).restart  # all of it is read again


def test_a_restart_lists_the_files_and_reads_the_state():
    late = saving(
        SHARED.set({"machine.restart_time": 100.0, "machine.storage.slow.metadata_rate": 1e4})
    )
    listing = predict(SHARED.set({"machine.storage.slow.metadata_rate": 1e4})).start_time
    assert listing > 0
    assert late.restart == pytest.approx(100 + listing + SIZE / 200e6)


@pytest.mark.parametrize("way", CHECKPOINTS)
def test_prices_broadcast_over_nodes_and_bandwidths(way):
    nodes, rates = np.array([1, 2, 4]), np.array([1e8, 1e9])[:, None]
    run = SHARED.set({"run.checkpoint": way, "run.checkpoint_writers": "all"})
    together = saving(run.set({"strategy.nodes": nodes, "machine.storage.slow.bandwidth": rates}))
    for i, rate in enumerate(rates.ravel()):
        for j, count in enumerate(nodes):
            alone = saving(
                run.set(
                    {"strategy.nodes": int(count), "machine.storage.slow.bandwidth": float(rate)}
                )
            )
            for name in ("blocked", "background", "restart", "local_restart"):
                value = np.broadcast_to(getattr(together, name), (2, 3))[i, j]
                assert value == pytest.approx(getattr(alone, name), rel=1e-12)


def test_a_restart_copies_the_samples_again_unless_the_nodes_still_have_them():
    staged = SHARED.set({"storage.access": "stage", "run.checkpoint": "multilevel"})
    found, plain = saving(staged), saving(SHARED.set({"run.checkpoint": "multilevel"}))
    listing = predict(SHARED).start_time
    copying = predict(staged).start_time - listing
    assert copying > 100
    assert found.restart - plain.restart == pytest.approx(copying)
    assert found.local_restart == plain.local_restart
