"""Gradients on the wire: bytes in the format of the exchange, and the time to cast them into it and back.

A cast reads every gradient in one format and writes it in the other, at the bandwidth of the device's memory. Ranks
add in the format of the wire, so an allreduce moves its bytes only (PyTorch's fp16_compress_hook does the same).
"""

from typing import Any

from lib_dlhpc.costs.compute import BYTES
from lib_dlhpc.costs.network import last_axis
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import SAME, Strategy


def wire_format(strategy: Strategy) -> str:
    """Return the format in which gradients are exchanged, a key of BYTES."""
    return strategy.precision if strategy.wire == SAME else strategy.wire


def is_cast(strategy: Strategy) -> bool:
    """Return whether gradients are exchanged in another format than they have in memory."""
    in_memory = "fp32" if strategy.precision == "tf32" else strategy.precision
    return wire_format(strategy) not in (in_memory, strategy.precision)


def on_wire(strategy: Strategy, size: Any) -> Any:
    """Return the bytes on the wire of gradients of `size` bytes in memory."""
    if not is_cast(strategy):
        return size
    return size * (BYTES[wire_format(strategy)] / BYTES[strategy.precision])


def cast_time(experiment: Experiment, size: Any) -> Any:
    """Return the seconds of one cast of gradients of `size` bytes in memory; the last axis of an array is buckets."""
    strategy = experiment.strategy
    if not is_cast(strategy):
        return 0.0 * size
    moved = size + on_wire(strategy, size)
    return moved / last_axis(experiment.machine.device.memory_bandwidth)
