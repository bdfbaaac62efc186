"""Gradients on the wire: bytes in the format of the exchange, and the time to cast them into it and back.

A cast reads every gradient in one format and writes it in the other, at the bandwidth of the device's memory. Ranks
add in the format of the wire, so an allreduce moves its bytes only (PyTorch's fp16_compress_hook does the same).
fp8 has few magnitudes: first the ranks agree on the largest of a bucket, so that its sum just fits.
"""

from typing import Any

from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.network import last_axis
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import NARROW, SAME, Strategy

# fp8: e4m3 (Micikevicius et al. 2022, "FP8 formats for deep learning")
BYTES = {**roofline.BYTES, "fp8": 1}
# gradients of precisions that only products have
IN_MEMORY = {"tf32": "fp32", **dict.fromkeys(NARROW, "bf16")}
SCALE_BYTES = 4.0  # the largest magnitude of a bucket, in fp32


def wire_format(strategy: Strategy) -> str:
    """Return the format in which gradients are exchanged, a key of BYTES."""
    return _in_memory(strategy) if strategy.wire == SAME else strategy.wire


def _in_memory(strategy: Strategy) -> str:
    return IN_MEMORY.get(strategy.precision, strategy.precision)


def is_cast(strategy: Strategy) -> bool:
    """Return whether gradients are exchanged in another format than they have in memory."""
    return wire_format(strategy) != _in_memory(strategy)


def adds_wide(strategy: Strategy) -> bool:
    """Return whether microbatches add up their gradients in the format of the wire, so that none is cast to leave.

    Where replicas shard the optimizer state alone, gradients that are added in 32 bits are exchanged where they are:
    Megatron-LM's main_grad with grad_reduce_in_fp32, whose buckets start_grad_sync reduce-scatters in place.
    """
    return bool(is_cast(strategy) and strategy.zero == 1 and strategy.microbatches > 1)


def on_wire(strategy: Strategy, size: Any) -> Any:
    """Return the bytes on the wire of gradients of `size` bytes in memory."""
    if not is_cast(strategy):
        return size
    return size * (BYTES[wire_format(strategy)] / BYTES[_in_memory(strategy)])


def is_scaled(strategy: Strategy) -> bool:
    """Return whether a bucket has a scale, on which ranks agree before it is cast."""
    return wire_format(strategy) == "fp8"


def search_time(experiment: Experiment, size: Any) -> Any:
    """Return the seconds to find the largest of `size` bytes of gradients, if they are scaled: each is read once."""
    if not is_scaled(experiment.strategy):
        return 0.0 * size
    return size / last_axis(experiment.machine.device.memory_bandwidth)


def cast_time(experiment: Experiment, size: Any) -> Any:
    """Return the seconds of one cast of gradients of `size` bytes in memory; the last axis of an array is buckets."""
    strategy = experiment.strategy
    if not is_cast(strategy):
        return 0.0 * size
    moved = size + on_wire(strategy, size)
    return moved / last_axis(experiment.machine.device.memory_bandwidth)
