"""SimGrid's platform XML: a cluster's hosts, their links and speed. What it states is assumed, so without intervals.

A message from host to host passes the private links of both, and the backbone if there is one. SimGrid has one speed of
a core for all precisions.
"""

import re

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.measurements.measurement import File, Measurement, Value
from lib_dlhpc.importing.measurements.xml_text import root_of
from lib_dlhpc.spec.units import BINARY_PREFIXES, PREFIXES, SMALL_PREFIXES, TIMES

TOOL = "SimGrid platform"
QUANTITY = re.compile(r"(\d+\.?\d*(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)")
LINK = "inter_node"


def read(file: File) -> list[Measurement]:
    """Return nodes, link and speed of the platform's only cluster; raises SpecError if it has none, or several."""
    clusters = list(root_of(file).iter("cluster"))
    if len(clusters) != 1:
        raise SpecError(
            f"{file.name}: {len(clusters)} clusters; a machine needs exactly one <cluster>, of identical hosts."
        )
    line = next(number for number, text in file.lines if "<cluster" in text)
    cluster, source = clusters[0], file.source(TOOL, line)

    def of(name: str, kind: str) -> float:
        if not (text := cluster.get(name)):
            raise SpecError(f"{file.name}, line {line}: <cluster> has no {name}.")
        return _quantity(text, kind, f"{file.name}, line {line}: {name}")

    latency, rate = 2 * of("lat", "s"), of("bw", "B/s")
    if cluster.get("bb_bw"):
        latency += of("bb_lat", "s") if cluster.get("bb_lat") else 0.0
        rate = min(rate, of("bb_bw", "B/s"))
    speed = of("speed", "f") * int(file.number(cluster.get("core", "1"), line))
    found = {
        "nodes": _hosts(cluster.get("radical", ""), f"{file.name}, line {line}"),
        "devices_per_node": 1,
        f"{LINK}.latency": latency,
        f"{LINK}.bandwidth": rate,
        "device.peak.fp64": speed,
        "device.peak.fp32": speed,
    }
    return [Value(key, value, source) for key, value in found.items()]


def _hosts(radical: str, where: str) -> int:
    """Return the number of hosts of a radical, such as "0-99" or "0,2,5-7"."""
    total = 0
    for part in radical.split(","):
        ends = part.strip().split("-")
        if not all(end.isdigit() for end in ends) or len(ends) > 2:
            raise SpecError(
                f"{where}: radical {radical!r}: expected numbers and ranges, such as 0-99."
            )
        total += int(ends[-1]) - int(ends[0]) + 1
    return total


def _quantity(text: str, kind: str, where: str) -> float:
    """Return "125MBps", "50us" or "1Gf" in SI units; "kiBps" has a binary prefix, "bps" are bits."""
    match = QUANTITY.fullmatch(text.strip())
    units = {"s": {"s": 1.0}, "B/s": {"Bps": 1.0, "bps": 0.125}, "f": {"f": 1.0}}[kind]
    for unit, factor in units.items():
        if match and match[2].endswith(unit):
            prefix = match[2][: -len(unit)]
            scales = SMALL_PREFIXES if kind == "s" else PREFIXES | BINARY_PREFIXES
            scale = {**scales, "": 1.0, "ki": 2.0**10}.get(prefix)
            if scale:
                return float(match[1]) * scale * factor
    if match and (match[2] == "" or (kind == "s" and match[2] in TIMES)):
        return float(match[1]) * TIMES.get(match[2], 1.0)
    raise SpecError(f"{where} {text!r}: no quantity in {kind}, such as 125MBps, 50us or 1Gf.")
