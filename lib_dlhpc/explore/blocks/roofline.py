"""The A100 of lessons: the roofline alone, without what the host, tiles and streams add to small kernels."""

from typing import Any

ROOFLINE: dict[str, Any] = {
    "name": "a100-sxm-80gb",
    "dispatch": 0.0,
    "multiprocessors": 0,
    "streaming": 0.0,
    "unfused_loss": False,
}
