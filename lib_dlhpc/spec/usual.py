"""What nearly all who train such a model on such a device choose: the defaults of "model@machine"."""

from typing import Any

from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.model import Model

MUCH_FASTER = 3  # times the peak rate of fp32, above which 16 bits are what a device is bought for


def usual_strategy(model: Model, device: Device) -> dict[str, Any]:
    """Return changes of a default strategy, by dotted field: AdamW for tokens, bf16 on devices that are made for it."""
    changes = dict[str, Any]()
    if model.reads_tokens:
        changes["strategy.optimizer"] = "adamw"
    if device.peak.get("bf16", 0) > MUCH_FASTER * device.peak.get("fp32", 0):
        changes["strategy.precision"] = "bf16"
    return changes
