"""Work that makes many objects is not interrupted by searches for garbage, which go on behind it."""

import gc

import pytest

from lib_dlhpc.gc_pause import gc_paused
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment


def searches(action):
    """Return how many searches for garbage begin during an action."""
    begun = []
    gc.collect()
    gc.callbacks.append(lambda phase, info: begun.append(phase) if phase == "start" else None)
    try:
        action()
    finally:
        gc.callbacks.pop()
    return len(begun)


def test_a_split_network_is_predicted_without_a_search_for_garbage():
    strategy = {"devices_per_node": 8, "tensor": 2, "pipeline": 2, "microbatches": 4, "batch": 4}
    model = {"family": "gpt", "hidden": 64, "heads": 4, "sequence": 32, "vocabulary": 64}
    one, other = (
        Experiment(model=model | {"layers": many}, machine="selene", strategy=strategy)
        for many in (2, 96)
    )
    predict(one)  # imports
    assert gc.isenabled()
    assert searches(lambda: predict(other)) <= 3  # before it and behind it
    assert gc.isenabled()


@pytest.mark.parametrize("collects", [True, False])
def test_collection_is_afterwards_as_it_was_before(collects):
    """Also within another such block, and where an error ends it."""
    try:
        if not collects:
            gc.disable()
        with pytest.raises(ValueError, match="the error"), gc_paused():
            with gc_paused():
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise ValueError("the error")
        assert gc.isenabled() == collects
    finally:
        gc.enable()
