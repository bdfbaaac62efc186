"""nccl-tests (and rccl-tests): collectives of devices, within a node or over several.

A row has size, time, algorithm bandwidth (size / time) and bus bandwidth, twice: out of place and in place, which count
as two repeats. Bus bandwidth is what a link carries: algorithm bandwidth times 2 (n-1)/n for an allreduce of n ranks,
(n-1)/n for one pass of a ring and for alltoall, 1 else. Warm-up is not in the times. Source: doc/PERFORMANCE.md there.
"""

import re

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.measurements.devices import device_named
from lib_dlhpc.importing.measurements.measurement import File, Measurement, Timed, ring

TOOL = "nccl-tests"
RANK = re.compile(r"^#?\s*Rank\s+\d+\s.*\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s+(.+?)\s*$")
NAME = re.compile(r"^# Collective test starting: (\w+)_perf")
PASSES = {"all_reduce": "allreduce", "all_gather": "", "reduce_scatter": ""}
BETWEEN = "inter_node"
# early versions print the largest error of a sum in place of the number of wrong values
ERROR = 1e-3


def read(file: File) -> list[Measurement]:
    """Return the times of all tests in a log; raises SpecError that names a broken line."""
    found: list[Measurement] = []
    hosts: list[str] = []
    test, start, device = "", 5, ""
    for line, text in file.lines:
        words = text.split()
        if name := NAME.match(text):
            test = name[1]
        elif "nThread" in text and "minBytes" in text:
            hosts = []
        elif rank := RANK.match(text):
            hosts.append(rank[1])
            device = device or rank[2]
        elif "redop" in words and "busbw" in words:
            start = 5 if "root" in words else 4
        elif len(words) > 2 and words[0].isdigit() and words[1].isdigit():
            if len(words) < start + 8:
                raise file.broken(line, "a row of results is incomplete")
            if float(words[0]):
                found.append(_row(file, line, words, start, test, hosts))
    return [*found, *_device(file, device)] if found else []


def _device(file: File, device: str) -> list[Measurement]:
    """Return the device that the ranks name."""
    lines = [number for number, text in file.lines if RANK.match(text)]
    return device_named(device, file.source(TOOL, lines[0], lines[-1])) if lines else []


def _row(
    file: File, line: int, words: list[str], start: int, test: str, hosts: list[str]
) -> Measurement:
    if not hosts:
        raise file.broken(line, "no '# Rank ... on HOST device ...' before these results")
    size, ranks, nodes = file.number(words[0], line), len(hosts), len(set(hosts))
    seconds = tuple(1e-6 * file.number(words[at], line) for at in (start, start + 4))
    for at in (start + 3, start + 7):
        if words[at] != "N/A" and file.number(words[at], line, zero=True) > ERROR:
            raise file.broken(line, f"{words[at]} wrong values: the test failed")
    if ranks == 1:
        raise SpecError(
            f"{file.name}: a single rank sends nothing; run nccl-tests on at least two."
        )
    if ranks % nodes:
        raise SpecError(
            f"{file.name}: {ranks} ranks on {nodes} nodes: expected the same number on each."
        )
    bus = file.number(words[start + 2], line) / file.number(words[start + 1], line)
    source = file.source(f"{TOOL} {test}".strip(), line)
    if nodes == 1:
        return Timed(_terms("intra_node", test, ranks, size, bus), seconds, source)
    each = ranks // nodes
    terms = _terms(BETWEEN, test, ranks, size, bus)
    if test == "alltoall":  # of each rank's data, the part for ranks on other nodes
        terms[f"{BETWEEN}.bandwidth"] = each * (ranks - each) / ranks * size
    # Neighbors in rank order: one pair crosses from a node to the next.
    return Timed(terms, seconds, source, links=1 if test == "sendrecv" else each)


def _terms(link: str, test: str, ranks: int, size: float, bus: float) -> dict[str, float]:
    """Return latencies and bytes. A test without a name has an unknown number of latencies."""
    if test in PASSES:
        return ring(link, PASSES[test], ranks, size)
    factors = (1.0, (ranks - 1) / ranks, 2 * (ranks - 1) / ranks)
    factor = min(factors, key=lambda each: abs(each - bus))
    constant = f"{link}.latency" if test == "sendrecv" else f"constant of {test or 'the test'}"
    return {constant: 1.0, f"{link}.bandwidth": factor * size}
