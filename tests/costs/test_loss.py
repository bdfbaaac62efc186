"""Laws of the loss of a language model: the bytes that its logits take in each way, as a count by hand says."""

import pytest
from split_runs import GPT, split

from lib_dlhpc.costs.stored_activations import backward_bytes, stored_bytes
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import parts
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.loss import is_logits, loss_of, with_loss
from lib_dlhpc.spec.strategy import IN_PLACE, LOSSES
from lib_dlhpc.training.check import check

WIDE = GPT | {"vocabulary": 4096, "layers": 2}  # the loss has the peak
LOGITS = 32 * 4096
# Bytes of a logit that forward stores, and at the peak of backward.
KEPT = {("in-place", 2): 4, ("separate", 2): 4, ("fused", 2): 2}
PEAK = {("in-place", 2): 6, ("separate", 2): 14, ("fused", 2): 4}
KEPT |= dict.fromkeys(((way, 4) for way in LOSSES), 4)
PEAK |= {("in-place", 4): 4, ("separate", 4): 12, ("fused", 4): 8}
KEPT |= dict.fromkeys(((way, 8) for way in LOSSES), 8)
PEAK |= {("in-place", 8): 8, ("separate", 8): 24, ("fused", 8): 16}
PRECISION = {2: "bf16", 4: "fp32", 8: "fp64"}


def run_of(way, **ways):
    return split(WIDE, **{"precision": "bf16", "loss": way, **ways})


@pytest.mark.parametrize(("way", "size"), PEAK, ids=str)
def test_the_arrays_of_logits_are_those_of_the_kernels(way, size):
    part = parts(run_of(way, precision=PRECISION[size]), 0)[0]
    (at,) = (at for at, layer in enumerate(part.model.layers) if is_logits(layer))
    others = stored_bytes(part, size) - KEPT[way, size] * LOGITS
    assert (
        others == stored_bytes(parts(run_of(IN_PLACE), 0)[0], size) - KEPT[IN_PLACE, size] * LOGITS
    )
    inputs = size * 32 * 64  # the gradient of what the last product reads
    assert backward_bytes(part, size)[at] == others + PEAK[way, size] * LOGITS + inputs


def test_logits_of_64_bits_take_twice_those_of_32():
    runs = {size: parts(run_of(IN_PLACE, precision=PRECISION[size]), 0)[0] for size in (4, 8)}
    held = {size: max(backward_bytes(part, size)) for size, part in runs.items()}
    assert held[8] == 2 * held[4]


def test_parts_of_logits_have_one_more_array_in_separate_kernels():
    """Of two ranks each has half of the logits; differences and exponentials are live with the result."""
    two = {way: parts(run_of(way, tensor=2), 0)[0] for way in LOSSES}
    peak = {way: max(backward_bytes(part, 2)) for way, part in two.items()}
    assert peak["separate"] - peak["in-place"] == (18 - 6) * LOGITS / 2


def test_predicted_memory_is_in_the_order_of_the_arrays():
    fused, in_place, separate = (
        float(predict(run_of(way)).memory_total) for way in ("fused", "in-place", "separate")
    )
    assert fused < in_place < separate


def test_the_same_way_gives_the_same_network_again():
    model = run_of(IN_PLACE).model
    assert with_loss(model, IN_PLACE) is model
    other = with_loss(model, "fused")
    assert [loss_of(layer) for layer in other.layers if is_logits(layer)] == ["fused"]
    assert with_loss(other, IN_PLACE) == model


def test_it_is_not_run():
    with pytest.raises(SpecError, match="'separate': it is predicted and simulated, not run"):
        check(run_of("separate", precision="fp32"))
