"""A published bus bandwidth of allreduce compared with alpha-beta from two of its points, and with NCCL's protocols."""

import tomllib
from typing import Any, NamedTuple

from lib_dlhpc.prediction.communication.collectives import bus_bandwidth
from lib_dlhpc.prediction.validation.definitions import protocol_bus_bandwidth
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.spec.catalog import ROOT

RUN = "arb32"  # 32 ranks on 4 nodes; catalog/published/arb32.toml says from where


class Point(NamedTuple):
    """Bytes of a message, and bus bandwidths in B/s: published, by alpha-beta, by NCCL's protocols."""

    size: float
    published: float
    line: float
    protocols: float


def points() -> list[Point]:
    """Return the published messages between the two points from which both models start."""
    rows = tomllib.loads((ROOT / "published" / f"{RUN}.toml").read_text("utf-8"))["rows"]
    return [_point(row["id"], row["inputs"]) for row in rows]


def _point(name: str, inputs: dict[str, Any]) -> Point:
    """Return a row: alpha is what is left of the short message's time, beta what the long one reaches."""
    size, ranks, (short, slow), (_, most) = (
        inputs[key] for key in ("n", "ranks", "small", "large")
    )
    share = 2 * (ranks - 1) / ranks
    alpha = share * short * (1 / slow - 1 / most)
    line = bus_bandwidth(size, alpha + share * size / most, ranks)
    published = 1e9 * float(results()[name]["value"])
    return Point(float(size), published, float(line), protocol_bus_bandwidth(**inputs))
