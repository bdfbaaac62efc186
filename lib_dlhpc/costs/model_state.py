"""Bytes of a parameter on a device: weights, gradients, optimizer state."""

from typing import Any

from lib_dlhpc.costs.muon import REST_STATE, rest
from lib_dlhpc.costs.roofline import BYTES, MIXED, STATE
from lib_dlhpc.spec.model import Model

MASTER_BYTES = 4  # fp32 copy of a weight in mixed precision


def state_each(model: Model, optimizer: str) -> float:
    """Return the numbers of optimizer state of a trained parameter of a model, in the mean."""
    return STATE[optimizer] + REST_STATE * rest(model, optimizer) / max(1, model.trained)


def model_state_bytes(
    parameters: Any,
    precision: str,
    optimizer: str,
    shards: Any = 1,
    stage: int = 0,
    numbers: Any = None,
) -> Any:
    """Return bytes of weights, gradients and optimizer state (with master weights) on one device.

    numbers: of optimizer state, a parameter (state_each); None: those of the optimizer's matrices.
    stage: what is sharded over `shards` devices: 0 nothing, 1 optimizer state, 2 gradients too, 3
    weights too (ZeRO, Rajbhandari et al. 2020, Figure 1).
    """
    size = BYTES[precision]
    master = MASTER_BYTES if precision in MIXED else 0
    state_numbers = STATE[optimizer] if numbers is None else numbers
    state = master + state_numbers * max(size, MASTER_BYTES)
    split = [shards if stage >= level else 1 for level in (3, 2, 1)]
    return parameters * (size / split[0] + size / split[1] + state / split[2])
