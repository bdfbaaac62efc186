"""Fit the host link: latency and bandwidth of moving offloaded tensors out of device memory and back.

On this machine the target is a file of the trainer, held in the page cache while there is memory; on a cluster node it
is host memory. Both directions are busy at once: seconds = latency + bytes of one direction / bandwidth.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.calibration.robust import Floats, Points, typical

Ends = tuple[float, float]


@dataclass(frozen=True)
class HostLink:
    """The fitted link. errors: of the points."""

    latency: float
    latency_ends: Ends
    bandwidth: float
    bandwidth_ends: Ends
    errors: Floats


def fit_host_link(raw: Mapping[str, Any]) -> HostLink | None:
    """Return the fit of the trainer's probe points; None if the probe could not create its file."""
    moved = raw.get("away", ())  # key of stored files
    if not moved:
        return None
    points = Points(
        [(1.0, float(point["size"])) for point in moved], [point["seconds"] for point in moved]
    )
    x = points.fit()
    # If bytes cost nothing measurable: the largest measured rate, a lower bound.
    most = max(point["size"] / typical(point["seconds"]) for point in moved)

    def shown(values: Floats) -> Floats:
        return np.array([values[0], 1 / values[1] if values[1] > 0 else most])

    latency, bandwidth = points.intervals(x, shown)
    return HostLink(float(x[0]), latency, float(shown(x)[1]), bandwidth, points.errors(x))
