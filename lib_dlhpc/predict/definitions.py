"""Published figures that follow from a definition alone: no machine is modelled, only arithmetic."""

from collections.abc import Callable
from typing import Any

from lib_dlhpc.costs.network import Level, Network
from lib_dlhpc.predict.collectives import bus_bandwidth, ring
from lib_dlhpc.predict.energy import facility_energy
from lib_dlhpc.predict.memory import attention_activation_saved, model_state_bytes


def checkpoint_size(parameters: float, bytes_each: float) -> float:
    """Return the bytes of a checkpoint that holds `bytes_each` for each parameter."""
    return parameters * bytes_each


def checkpoint_overhead(duration: float, interval: float, seconds_each: float) -> float:
    """Return the seconds spent on checkpoints of `seconds_each` every `interval` over `duration` s."""
    return duration / interval * seconds_each


def file_operations(files: float, epochs: float) -> float:
    """Return how often files are opened when each is read once an epoch."""
    return files * epochs


def gradient_bandwidth(bytes_moved: float, seconds: float) -> float:
    """Return the B/s at which `bytes_moved` must travel to be done in `seconds` (Goyal et al. 2017, section 4)."""
    return bytes_moved / seconds


def ring_bus_bandwidth(n: float, ranks: int, small: list[float], large: list[float]) -> float:
    """Return the bus bandwidth in B/s of a ring whose alpha and beta meet two measured points.

    small, large: [bytes, bus bandwidth in B/s] of a short and a long message.
    """
    factor = 2 * (ranks - 1) / ranks
    (n0, bus0), (n1, bus1) = small, large
    t0, t1 = n0 / bus0 * factor, n1 / bus1 * factor
    slope = (t1 - t0) / (n1 - n0)
    level = Level(ranks, (t0 - slope * n0) / (2 * (ranks - 1)), slope / factor)
    time = ring(n, Network(level, Level(1, 0.0, 0.0), 0.0)).total
    return float(bus_bandwidth(n, time, ranks))


DEFINITIONS: dict[str, Callable[..., Any]] = {
    "model_state_bytes": model_state_bytes,
    "attention_activation_saved": attention_activation_saved,
    "checkpoint_size": checkpoint_size,
    "checkpoint_overhead": checkpoint_overhead,
    "facility_energy": facility_energy,
    "file_operations": file_operations,
    "gradient_bandwidth": gradient_bandwidth,
    "ring_bus_bandwidth": ring_bus_bandwidth,
}
