"""One reader: a script that takes tasks as JSON lines, and reports begin, end and samples of each.

It imports nothing of the package, so that many readers start quickly. A reader receives a task, prepares it, replies
"ready", and starts on the line "go". A task ends with its list or, if `again` cycles the list, with its `budget` of
seconds.
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
    """Serve tasks until the input ends, which is when the parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and closes this input
    for line in sys.stdin:
        try:
            answer = serve(json.loads(line))
        except OSError as error:
            answer = {"error": f"{error.filename or ''}: {error.strerror or error}"}
        reply(answer)


def reply(answer: dict[str, Any]) -> None:
    """Print one line and flush it; end without a word where the parent was killed."""
    try:
        print(json.dumps(answer), flush=True)
    except BrokenPipeError:
        os._exit(1)  # no flush at the end, which would fail, too


def serve(task: dict[str, Any]) -> dict[str, Any]:
    """Prepare, wait for the start, and run one task; returns begin and end in s, and the samples read."""
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
    """Reply "ready", and wait for "go"."""
    reply({"ready": True})
    sys.stdin.readline()


def look(path: str) -> None:
    """Stat, open and close: the metadata cost of a file."""
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
