"""Every second of a step is a term: work, a bubble, a wait, or an exposed exchange that can be named."""

import numpy as np
import pytest
from split_runs import GPT, IMAGES, split

from lib_dlhpc.parallel import program
from lib_dlhpc.prediction.price import price
from lib_dlhpc.program import StagePath, messages_of, work_of

SHARING = [  # exchanges within passes, and which others use their links
    ({"tensor": 2, "sequence_parallel": True, "data": 2, "zero": 3}, "tensor"),
    ({"tensor": 2, "data": 4, "zero": 3, "shards": 2}, "tensor"),
    ({"context": 2, "data": 2, "zero": 3}, "context"),
]


def ends(step):
    path = StagePath(step, 1.0)
    path.run()
    return path.finish()


@pytest.mark.parametrize(("ways", "kind"), SHARING)
def test_an_exchange_within_passes_is_slowed_by_no_more_than_those_beside_it(ways, kind):
    step = program(split(GPT | {"vocabulary": 512}, batch=16, devices_per_node=1, **ways))
    found, (messages, within) = price(step), messages_of(step)
    assert found.total == pytest.approx(ends(step), rel=1e-12)
    assert 0 < found.exposed[kind] - within[kind] <= messages["data"].total


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_stages_with_a_short_update_wait_for_those_with_a_long_one(schedule):
    ways = {"batch": 16, "pipeline": 2, "microbatches": 4, "schedule": schedule}
    step = program(split(IMAGES, devices_per_node=1, **ways))
    found, update = price(step), work_of(step).update
    assert found.total == pytest.approx(ends(step), rel=1e-12)
    longer = float(np.max(update) - np.mean(update))
    assert longer > 0
    free = StagePath(step, 1.0, free=True)
    free.run()
    before = StagePath(step, 1.0)
    before.run()
    assert found.exposed["pipeline"] - (before.end - free.end) == pytest.approx(longer, rel=1e-6)
