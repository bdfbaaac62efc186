"""Intel MPI Benchmarks: PingPong's t[usec] is half of the round trip, so the time of one message; Allreduce as a ring.

Collectives have least, largest and mean time over the ranks; the mean counts.
"""

import re

from lib_dlhpc.importing.measurements.measurement import File, Measurement, Timed, ring

TOOL = "IMB"
TITLE = re.compile(r"^# Benchmarking (\w+)")
RANKS = re.compile(r"^# #processes = (\d+)")
KNOWN = ("PingPong", "Allreduce")


def read(file: File) -> list[Measurement]:
    """Return the times of PingPong and Allreduce; other benchmarks are skipped. Raises SpecError at a broken line."""
    found: list[Measurement] = []
    columns: list[str] = []
    test, ranks = "", 0
    for line, text in file.lines:
        words = text.split()
        if title := TITLE.match(text):
            test, columns = title[1], []
        elif said := RANKS.match(text):
            ranks = int(said[1])
        elif words[:1] == ["#bytes"]:
            columns = words
        elif test in KNOWN and columns and words and words[0].isdigit():
            if len(words) < len(columns):
                raise file.broken(line, "a row of results is incomplete")
            if float(words[0]):
                found.append(_row(file, line, dict(zip(columns, words, strict=False)), test, ranks))
    return found


def _row(file: File, line: int, row: dict[str, str], test: str, ranks: int) -> Timed:
    link, size = file.link(TOOL), file.number(row["#bytes"], line)
    source = file.source(f"{TOOL} {test}", line)
    column = "t[usec]" if test == "PingPong" else "t_avg[usec]"
    if column not in row:
        raise file.broken(line, f"there is no column {column}")
    seconds = (1e-6 * file.number(row[column], line),)
    if test == "Allreduce":
        return Timed(ring(link, "allreduce", ranks, size), seconds, source)
    return Timed({f"{link}.latency": 1.0, f"{link}.bandwidth": size}, seconds, source)
