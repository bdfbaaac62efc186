"""Laws of checkpoints: how many bytes, how long they take, and what of that a step has."""

import pytest

from lib_dlhpc import loads
from lib_dlhpc.predict import predict, storage
from lib_dlhpc.predict.memory import checkpoint_bytes

RUN = loads("""
[model]
name = "resnet50"
[dataset]
name = "imagenet"
[machine]
name = "summit"
[machine.storage.fast]
scope = "node"
bandwidth = "2 GB/s"
write_bandwidth = "1 GB/s"
[strategy]
nodes = 4
[storage]
tier = "fast"
""")


def test_a_checkpoint_is_weights_and_optimiser_state_written_by_one_node():
    size = checkpoint_bytes(RUN.model, "fp32", "momentum")
    assert size == 8 * 25_557_032
    assert storage.checkpoint_time(RUN) == pytest.approx(size / 1e9)
    every_minute = predict(RUN.set({"run.checkpoint_interval": 60.0}))
    plain = predict(RUN)
    assert every_minute.step_time / plain.step_time == pytest.approx(1 + size / 1e9 / 60)


def test_without_a_tier_there_is_nothing_to_write():
    assert storage.checkpoint_time(RUN.set({"storage.tier": ""})) == 0
