"""One reader: a script that takes tasks, one JSON line each, and says when it began, ended, and how far it came.

It imports nothing of the package, so that many readers start quickly. A task is announced, prepared,
answered with "ready", and done when the line "go" comes. It ends when its list is done, or, where it goes
round `again`, with the `budget` of seconds.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

PART = 1 << 20  # B written by one call


def main() -> None:
    """Serve tasks until the input ends: then whoever gave them is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and ends this input
    for line in sys.stdin:
        try:
            answer = serve(json.loads(line))
        except OSError as error:
            answer = {"error": f"{error.filename or ''}: {error.strerror or error}"}
        reply(answer)


def reply(answer: dict[str, Any]) -> None:
    """Print one line, at once."""
    print(json.dumps(answer), flush=True)


def serve(task: dict[str, Any]) -> dict[str, Any]:
    """Prepare, wait for the start, and do one task; returns its begin and end in s, and the samples done."""
    if task["what"] == "write":
        return write(task)
    paths, handles = task["paths"], []
    if task["what"] in ("random", "sequential"):
        handles = [os.open(path, os.O_RDONLY) for path in paths]
    ways: dict[str, Callable[[Any], Any]] = {
        "stat": os.stat,
        "open": look,
        "file": fetch,
        "random": lambda at: read_at(handles[at[0]], task["size"], at[1]),
        "sequential": lambda at: read_at(handles[at[0]], task["size"], at[1]),
    }
    once = ways[task["what"]]
    places, again, budget = task["places"], task["again"], task["budget"]
    order: Iterator[Any] = chain.from_iterable(repeat(places)) if again else iter(places)
    try:
        start()
        done, clock = 0, time.perf_counter
        work, begin = time.process_time(), clock()
        late = begin + budget
        for place in order:
            once(place)
            done += 1
            if clock() > late:
                break
        end = clock()
        return {"begin": begin, "end": end, "samples": done, "work": time.process_time() - work}
    finally:
        for handle in handles:
            os.close(handle)


def start() -> None:
    """Say that all is prepared, and wait for the others."""
    reply({"ready": True})
    sys.stdin.readline()


def look(path: str) -> None:
    """Stat, open and close: what a file costs before its first byte."""
    os.stat(path)
    with open(path, "rb", buffering=0):
        pass


def fetch(path: str) -> None:
    """Stat, open, read and close, as a loader of one file a sample does."""
    size = os.stat(path).st_size
    with open(path, "rb", buffering=0) as file:
        file.read(size)


def read_at(handle: int, size: int, offset: int) -> None:
    """Read a part of an open file."""
    if hasattr(os, "pread"):
        os.pread(handle, size, offset)
    else:
        os.lseek(handle, offset, os.SEEK_SET)
        os.read(handle, size)


def write(task: dict[str, Any]) -> dict[str, Any]:
    """Write one new file in parts until the time is over, and flush it to the device."""
    part, done = os.urandom(PART), 0
    start()
    work, begin = time.process_time(), time.perf_counter()
    with open(task["paths"][0], "wb", buffering=0) as file:
        while done < task["most"] and (done == 0 or time.perf_counter() < begin + task["budget"]):
            file.write(part)
            done += 1
        os.fsync(file.fileno())
    end = time.perf_counter()
    return {"begin": begin, "end": end, "samples": done, "work": time.process_time() - work}


if __name__ == "__main__":
    main()
