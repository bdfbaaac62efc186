"""OSU Micro-Benchmarks: latency is one way, in us; bandwidth is of many messages in flight, in MB/s of 1e6 B.

osu_latency: latency + n / bandwidth. osu_bw: a constant for each message + n / bandwidth. osu_bibw: bytes of both
directions. osu_allreduce: the mean time in us, as a ring; the number of ranks is not in its output. With -f a row has
mean, least and largest time, which count as repeats.
"""

import re

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.measurements.measurement import File, Measurement, Timed, ring

TOOL = "OSU"
TITLE = re.compile(r"^\s*# OSU MPI\S*( .*)? Test v")
KNOWN = {
    "Latency": "latency",
    "Bandwidth": "bw",
    "Bi-Directional Bandwidth": "bibw",
    "Allreduce Latency": "allreduce",
}


def read(file: File) -> list[Measurement]:
    """Return the times of all tests in a text; raises SpecError for a test that says nothing about a link."""
    found: list[Measurement] = []
    test = ""
    for line, text in file.lines:
        words = text.split()
        if title := TITLE.match(text):
            test = _test(file, line, (title[1] or "").strip())
        elif test and words and words[0].isdigit():
            if len(words) < 2:
                raise file.broken(line, "a row of results is incomplete")
            if float(words[0]):
                found.append(_row(file, line, words, test))
    return found


def _test(file: File, line: int, title: str) -> str:
    if title not in KNOWN:
        raise file.broken(line, f"{title!r} is not imported; known: {', '.join(KNOWN)}")
    if KNOWN[title] == "allreduce" and file.ranks < 2:
        part = file.link(TOOL)
        raise SpecError(
            f"{file.name}: OSU does not print the number of ranks; write {part}:RANKS={file.name}, such as"
            f" {part}:64={file.name}."
        )
    return KNOWN[title]


def _row(file: File, line: int, words: list[str], test: str) -> Timed:
    link, size = file.link(TOOL), file.number(words[0], line)
    source = file.source(f"{TOOL} osu_{test}", line)
    full = len(words) > 4 and not any(word.isalpha() for word in words)
    values = [file.number(word, line) for word in words[1 : 4 if full else 2]]
    if test in ("bw", "bibw"):
        n = size * (1 + (test == "bibw"))
        terms = {f"gap of {link}": 1.0, f"{link}.bandwidth": size}
        return Timed(terms, (n / (1e6 * values[0]),), source)
    seconds = tuple(1e-6 * value for value in values)
    if test == "allreduce":
        return Timed(ring(link, "allreduce", file.ranks, size), seconds, source)
    return Timed({f"{link}.latency": 1.0, f"{link}.bandwidth": size}, seconds, source)
