"""fio, its text or its JSON: reads and writes a second (IOPS), and their bandwidth; both of all jobs of a group.

One job with one request at a time is a single reader: read_latency + size / reader_bandwidth. Several requests at a
time get 1 / read_rate + size / bandwidth of the tier. The standard deviation of fio's samples gives the repeats.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.measurements.measurement import File, Measurement, Source, Timed, spread
from lib_dlhpc.spec.units import BINARY_PREFIXES, PREFIXES

TOOL = "fio"
GROUP = re.compile(r"^\S+: \(groupid=\d+, jobs=(\d+)\)")
DEPTH = re.compile(r"iodepth=(\d+)")
RESULT = re.compile(r"^\s+(read|write): IOPS=([\d.]+)([kM]?), BW=([\d.]+)(\w*)B/s")
SAMPLES = re.compile(r"^\s+iops\s*: .*avg=\s*([\d.]+), stdev=\s*([\d.]+)")


class _Rate(NamedTuple):
    """Reads or writes a second, their bytes a second, and the relative deviation of samples."""

    what: str
    iops: float
    bandwidth: float
    deviation: float
    at_a_time: int
    line: int


def read(file: File) -> list[Measurement]:
    """Return the rates of all groups of jobs; raises SpecError for broken JSON, with its line."""
    rates = _json(file) if '"fio version"' in file.text else _text(file)
    tier, last = file.tier(TOOL), file.text.count("\n")
    return [
        _timed(tier, rate, file.source(f"{TOOL} {rate.what}", rate.line or 1, rate.line or last))
        for rate in rates
    ]


def _timed(tier: str, rate: _Rate, source: Source) -> Timed:
    size = rate.bandwidth / rate.iops
    if rate.what == "write":
        terms = {f"{tier}.write_bandwidth": size}
    elif rate.at_a_time == 1:
        terms = {f"{tier}.read_latency": 1.0, f"{tier}.reader_bandwidth": size}
    else:
        terms = {f"{tier}.read_rate": 1.0, f"{tier}.bandwidth": size}
    seconds = tuple(1 / each for each in spread(rate.iops, rate.deviation * rate.iops))
    return Timed(terms, seconds, source)


def _text(file: File) -> Iterator[_Rate]:
    jobs, depth, found = 1, 1, list[_Rate]()
    for line, text in file.lines:
        if group := GROUP.match(text):
            jobs = int(group[1])
        elif "ioengine=" in text and (said := DEPTH.search(text)):
            depth = int(said[1])
        elif result := RESULT.match(text):
            what, iops, thousands, rate, prefix = result.groups()
            scale = (PREFIXES | BINARY_PREFIXES).get(prefix)
            if scale is None:
                raise file.broken(line, f"{prefix}B/s is not a known unit")
            numbers = file.number(iops, line) * PREFIXES[thousands], file.number(rate, line) * scale
            found.append(_Rate(what, *numbers, 0.0, jobs * depth, line))
        elif found and (samples := SAMPLES.match(text)) and float(samples[1]):
            found[-1] = found[-1]._replace(deviation=float(samples[2]) / float(samples[1]))
    return iter(found)


def _json(file: File) -> Iterator[_Rate]:
    start = file.text.index("{") if "{" in file.text else len(file.text)
    try:  # warnings may precede it, and follow it
        table: dict[str, Any] = json.JSONDecoder().raw_decode(file.text[start:])[0]
    except ValueError as error:
        line = file.text.count("\n", 0, start) + getattr(error, "lineno", 1)
        last = len(file.text.splitlines())
        raise file.broken(min(line, last), f"broken JSON, {error}") from None
    everywhere = table.get("global options", {})
    for job in table.get("jobs", []):
        options = everywhere | job.get("job options", {})
        at_a_time = int(options.get("numjobs", 1)) * int(options.get("iodepth", 1))
        for what in ("read", "write"):
            result = job.get(what, {})
            if not result.get("total_ios"):
                continue
            mean = result.get("iops_mean") or 1.0
            deviation = result.get("iops_stddev", 0.0) / mean
            iops, rate = (result.get(key, 0) for key in ("iops", "bw_bytes"))
            if not all(isinstance(each, int | float) and each > 0 for each in (iops, rate)):
                raise SpecError(
                    f"{file.name}: job {job.get('jobname')!r} has no rate of its {what}s."
                )
            yield _Rate(what, float(iops), float(rate), deviation, at_a_time, 0)
