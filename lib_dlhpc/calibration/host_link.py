"""What pieces that go out of memory and back say: latency and bandwidth of the way to where they wait (offload).

On this machine that is a file of the trainer's, which the system keeps in its own memory as long as there is room; on a
cluster's node it is the link to the host. Both directions are full at once: seconds are a latency, and the bytes of one
direction over the bandwidth.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.calibration.robust import Floats, Points, typical

Ends = tuple[float, float]


@dataclass(frozen=True)
class HostLink:
    """What was found of the way. errors: of the points."""

    latency: float
    latency_ends: Ends
    bandwidth: float
    bandwidth_ends: Ends
    errors: Floats


def fit_host_link(raw: Mapping[str, Any]) -> HostLink | None:
    """Return what the points of the trainer's probe amount to; None where it could have no file."""
    away = raw.get("away", ())
    if not away:
        return None
    points = Points(
        [(1.0, float(point["size"])) for point in away], [point["seconds"] for point in away]
    )
    x = points.fit()
    # Where bytes seem to cost nothing, the largest rate that was measured: a lower bound.
    most = max(point["size"] / typical(point["seconds"]) for point in away)

    def shown(values: Floats) -> Floats:
        return np.array([values[0], 1 / values[1] if values[1] > 0 else most])

    latency, bandwidth = points.intervals(x, shown)
    return HostLink(float(x[0]), latency, float(shown(x)[1]), bandwidth, points.errors(x))
