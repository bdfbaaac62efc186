"""Fit matrix products, calls and sums: GEMM rate against size, cost of a call, memory bandwidth."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.calibration.messages import curve
from lib_dlhpc.calibration.robust import Floats, Points, calm, typical

# B of the fitted arrays, out of cache: gradient buckets of networks that a laptop trains.
SUMMED = 1 << 14, 1 << 22
TRAFFIC = 3  # a sum reads two numbers and writes one
PRODUCTS = {"fp32": "gemm float32", "fp64": "gemm float64"}  # points of a precision
Ends = tuple[float, float]


@dataclass(frozen=True)
class Numbers:
    """The fitted numbers. peak: largest measured rate, by precision; efficiency: fitted rate over peak."""

    peak: dict[str, float]
    peak_ends: dict[str, Ends]
    efficiency: float
    efficiency_ends: Ends
    half_work: float
    half_work_ends: Ends
    launch: float
    launch_ends: Ends
    memory_bandwidth: float
    memory_bandwidth_ends: Ends
    errors: dict[str, Floats]

    @property
    def gamma(self) -> float:
        """Seconds to reduce one byte."""
        return TRAFFIC / self.memory_bandwidth


def fit_numbers(
    results: Mapping[str, Any],
    products_of: Mapping[str, str] = PRODUCTS,
    reference: str = "fp32",
    summed: tuple[float, float] = SUMMED,
) -> Numbers:
    """Return the fit of products, calls and sums.

    products_of: the points of each precision. reference: the precision that efficiency and half_work are of. summed:
    least and largest B of the fitted sums.
    """
    quiet = calm(results["others"])
    peak, ends = _peaks(results, quiet, products_of)
    calls = np.asarray(_chosen(results, "call")[0]["seconds"])[quiet]
    launch = float(np.median(calls))
    products = _chosen(results, products_of[reference])
    points = Points(
        [(1.0, 2.0 * p["size"] ** 3) for p in products],
        [np.asarray(p["seconds"])[quiet] for p in products],
    )

    def shown(x: Floats) -> Floats:
        rate = min(1 / x[1], peak[reference]) if x[1] > 0 else peak[reference]
        return np.array([rate / peak[reference], max(0.0, x[0] - launch) * rate])

    x = points.fit()
    efficiency, half = points.intervals(x, shown)
    memory_bandwidth, bandwidth, sum_errors = _bandwidth(results, quiet, summed)
    return Numbers(
        peak,
        ends,
        float(shown(x)[0]),
        (efficiency[0], min(efficiency[1], 1.0)),
        float(shown(x)[1]),
        half,
        launch,
        (float(np.quantile(calls, 0.05)), float(np.quantile(calls, 0.95))),
        memory_bandwidth,
        bandwidth,
        {"gemm": points.errors(x), "sum": sum_errors},
    )


def _bandwidth(
    results: Mapping[str, Any], quiet: Any, summed: tuple[float, float]
) -> tuple[float, Ends, Floats]:
    """Return the B/s of sums, their interval, and the errors of the fit."""
    sums = [p for p in _chosen(results, "sum") if summed[0] <= p["size"] <= summed[1]]
    adds = Points(
        [(1.0, float(TRAFFIC * p["size"])) for p in sums],
        [np.asarray(p["seconds"])[quiet] for p in sums],
    )
    y = adds.fit()
    most = max(TRAFFIC * p["size"] / typical(np.asarray(p["seconds"])[quiet]) for p in sums)

    def rate_of(values: Floats) -> Floats:
        return np.array([1 / values[1] if values[1] > 0 else most])

    (ends,) = adds.intervals(y, rate_of)
    return float(rate_of(y)[0]), ends, adds.errors(y)


def _peaks(
    results: Mapping[str, Any], quiet: Any, products_of: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the FLOP/s of the fastest product in each precision, and its interval."""
    peak, ends = {}, {}
    for name, what in products_of.items():
        edges, took = curve(results, what)
        rates = [2 * edge**3 / seconds for edge, seconds in zip(edges, took, strict=True)]
        peak[name], at = max(rates), int(np.argmax(rates))
        raw = np.asarray(_chosen(results, what)[at]["seconds"])[quiet]
        each = 2 * edges[at] ** 3 / np.quantile(raw, (0.95, 0.05))
        ends[name] = (min(float(each[0]), peak[name]), max(float(each[1]), peak[name]))
    return peak, ends


def _chosen(results: Mapping[str, Any], what: str) -> list[Any]:
    return [point for point in results["points"] if point["what"] == what]
