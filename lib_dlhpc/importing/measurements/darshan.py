"""Darshan, as darshan-parser writes it: what each file of a job cost, summed over the job's calls of POSIX.

Reads take read_latency + bytes / reader_bandwidth of one reader, and opens, closes and stats operation_latency each,
under the load of the job itself. Files are grouped by the mean size of their reads; those that were flushed say nothing
of metadata. What all readers get together is not in the log, nor whether a page cache answered. Of several file
systems that were read, the one with most bytes is the tier. Source: the counters' description in darshan-parser.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lib_dlhpc.importing.measurements.measurement import File, Measurement, Note, Timed
from lib_dlhpc.spec.units import count, format_quantity

TOOL = "Darshan"
COLUMNS = 8  # module, rank, record, counter, value, file, mount point, file system
HEADER = re.compile(r"^# (nprocs|run time):\s*(\S+)")
SIZE = "POSIX_SIZE_READ_"
NOT_THERE = (
    "The log does not say what all readers get together, nor what a page cache answered; reads of mapped files and of"
    " C's streams are not in it."
)
METADATA = "OPENS", "OPENS", "STATS"  # an open has its close; seeks are of the client alone


class _Record(NamedTuple):
    """The counters of a file by one rank, or by all; the lines that they stand in."""

    mount: str
    counters: dict[str, float]
    lines: list[int]

    def __call__(self, *names: str) -> float:
        """Return the sum of some counters; what Darshan could not monitor, -1, counts as 0."""
        return sum(max(self.counters.get(f"POSIX_{name}", 0.0), 0.0) for name in names)


def read(file: File) -> list[Measurement]:
    """Return the times of reads and metadata, and what the job did; raises SpecError that names a broken line."""
    header, records = _records(file)
    tier, mounts = file.tier(TOOL), Counter[str]()
    for each in records:
        mounts[each.mount] += int(each("BYTES_READ"))
    if not mounts:
        return []
    mount = mounts.most_common(1)[0][0]
    chosen = [each for each in records if each.mount == mount]
    found: list[Measurement] = [*_reads(file, tier, chosen), *_metadata(file, tier, chosen)]
    others = [
        f"{name} {format_quantity(size, 'B')}"
        for name, size in mounts.most_common()
        if name != mount
    ]
    left = (
        [f"{file.name}: left out: {', '.join(others)} read from other file systems."]
        if others
        else []
    )
    return [*found, *(Note(text) for text in (_said(file, header, mount, chosen), *left))]


def _records(file: File) -> tuple[dict[str, float], list[_Record]]:
    """Return processes and run time of the job, and the records of its files."""
    header: dict[str, float] = {}
    records: dict[tuple[str, ...], _Record] = {}
    for line, text in file.lines:
        if about := HEADER.match(text):
            header[about[1]] = file.number(about[2], line)
        elif text.startswith("POSIX\t"):
            words = text.split("\t")
            if len(words) != COLUMNS:
                raise file.broken(line, f"expected {COLUMNS} columns, as of darshan-parser 3")
            _, rank, record, counter, value, _, mount, system = words
            of = records.setdefault((rank, record), _Record(f"{mount} ({system})", {}, []))
            of.counters[counter] = _value(file, value, line)
            of.lines.append(line)
    return header, list(records.values())


def _value(file: File, word: str, line: int) -> float:
    """Return a counter; below 0 Darshan could not monitor it: -1, or a time that its clock took backwards."""
    return -1.0 if word.startswith("-") else file.number(word, line, zero=True)


def _reads(file: File, tier: str, records: Sequence[_Record]) -> list[Timed]:
    """Return the times of reads, one of all files whose mean reads are of about the same size."""
    groups = defaultdict(list)
    for each in records:
        if each("READS") and each("BYTES_READ") and each("F_READ_TIME"):
            groups[int(each("BYTES_READ") / each("READS")).bit_length()].append(each)
    of = {f"{tier}.read_latency": ("READS",), f"{tier}.reader_bandwidth": ("BYTES_READ",)}
    return [_timed(file, "reads", some, of, "F_READ_TIME") for _, some in sorted(groups.items())]


def _metadata(file: File, tier: str, records: Sequence[_Record]) -> list[Timed]:
    """Return the times of opens, closes and stats, one of all files with about as many."""
    groups = defaultdict(list)
    for each in records:
        if each(*METADATA) and each("F_META_TIME") and not each("FSYNCS", "FDSYNCS"):
            groups[int(each(*METADATA)).bit_length()].append(each)
    of = {f"{tier}.operation_latency": METADATA}
    return [_timed(file, "metadata", some, of, "F_META_TIME") for _, some in sorted(groups.items())]


def _timed(
    file: File,
    what: str,
    records: Sequence[_Record],
    of: Mapping[str, tuple[str, ...]],
    seconds: str,
) -> Timed:
    """Return the time of some files together. of: the counters that a term sums."""
    terms = {key: sum(each(*names) for each in records) for key, names in of.items()}
    lines = [line for each in records for line in each.lines]
    source = file.source(f"{TOOL} {what}", min(lines), max(lines))
    return Timed(terms, (sum(each(seconds) for each in records),), source)


def _said(file: File, header: Mapping[str, float], mount: str, records: Sequence[_Record]) -> str:
    """Return what the job did with the tier, and the most that it can have waited for its input."""

    def total(*names: str) -> float:
        return sum(each(*names) for each in records)

    reads, size = total("READS"), total("BYTES_READ")
    read = [each for each in records if each("READS")]
    text = (
        f"{file.name}: {mount}: {format_quantity(size, 'B')} of {count(len(read), 'file')} in {reads:,.0f} reads"
        f"{_sizes(records)}, {total('OPENS'):,.0f} opens and {total('STATS'):,.0f} stats"
    )
    if {"nprocs", "run time"} <= header.keys():
        whole = header["nprocs"] * header["run time"]
        inside, about = total("F_READ_TIME") / whole, total("F_META_TIME") / whole
        text += (
            f"; reads take {inside:.2%} of the processes' time and metadata {about:.2%}: they stall input no longer,"
            " and less where loaders read ahead"
        )
    if read and (span := max(e("F_READ_END_TIMESTAMP") for e in read) - _begin(read)) > 0:
        text += f"; from the first read to the last {format_quantity(size / span, 'B/s')}, with all pauses"
    return f"{text}. {NOT_THERE}"


def _begin(read: Sequence[_Record]) -> float:
    return min(each("F_READ_START_TIMESTAMP") for each in read)


def _sizes(records: Sequence[_Record]) -> str:
    """Return the sizes that most reads have; the last part of a counter's name is its range."""
    bins = Counter[str]()
    for each in records:
        for name, value in each.counters.items():
            if name.startswith(SIZE):
                bins[name.removeprefix(SIZE)] += int(max(value, 0))
    if not bins.total():
        return ""
    name, times = bins.most_common(1)[0]
    return f" ({times / bins.total():.0%} of {name.replace('_', ' to ').replace('to PLUS', 'and more')} B)"
