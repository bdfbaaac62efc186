"""Laws of long sequences: what does not fit on a device fits on several, and no token is paid for twice."""

import pytest

from lib_dlhpc import Experiment
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.limits.fit import ways_to_fit
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown

LONG = Experiment(
    model={"name": "llama3-8b", "sequence": 131_072},
    dataset="webtext",
    machine="h100-pod",
    strategy={
        "nodes": 4,
        "batch": 1,
        "precision": "bf16",
        "optimizer": "adam",
        "zero": 3,
        "recompute": "full",
    },
)


@pytest.mark.parametrize("way", ["heads", "ring"])
def test_a_long_sequence_fits_on_eight_devices_and_not_on_one(way):
    """Llama 3 8B at 128k tokens, with ZeRO 3 and full recomputation: activations do not fit, divided by 8 they do."""
    one = predict(LONG)
    many = predict(LONG.set({"strategy.context": 8, "strategy.context_exchange": way}))
    assert not one.fits and many.fits
    assert 8 * many.memory["activations"] == pytest.approx(one.memory["activations"], rel=1e-6)
    assert many.memory["weights"] == one.memory["weights"]
    work = many.terms["forward"] + many.terms["backward"]
    assert 8 * work == pytest.approx(one.terms["forward"] + one.terms["backward"], rel=0.01)
    assert many.exposed["context"] < 0.02 * many.step_time


def test_a_ring_has_no_limit_of_heads_and_hides_its_messages():
    """Between nodes: 32 ranks, of a network with 8 heads of keys and values."""
    ring = predict(LONG.set({"strategy.context": 32, "strategy.context_exchange": "ring"}))
    assert ring.fits and ring.exposed["context"] < 0.05 * ring.messages["context"].total


def test_dividing_the_sequence_is_among_the_ways_to_fit():
    """One sample of 131,072 tokens: fewer samples at a time cannot be had."""
    assert any("context" in way.words for way in ways_to_fit(LONG))


@pytest.mark.parametrize("exchange", ["gather", "ring"])
def test_a_ring_of_blocks_is_as_slow_as_the_slower_link(exchange):
    """On a TPU v3 the links inside a node are slower than those between nodes."""
    options = {"nodes": 2, "devices_per_node": 2, "context": 4, "context_exchange": exchange}
    options |= {"precision": "bf16", "batch": 4, "microbatches": 2, "overlap": False}
    machine = {"name": "tpu-v3-pod", "jitter": 0.0}
    run = Experiment(model="llama3.2-1b", machine=machine, strategy=options)
    simulated = sum(breakdown(simulate(run, "events")).terms.values())
    assert simulated == pytest.approx(float(predict(run).step_time), rel=1e-6)
