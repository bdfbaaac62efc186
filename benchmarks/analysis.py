"""How fast a trace of ten million events is analyzed, and in how much memory, beside a pass in plain Python.

The trace is a halo exchange with an allreduce a step: each rank computes in a region, sends to both neighbors,
receives from both. The named peer is what a script does that goes through the events one by one with
dictionaries (matching, late senders, time by name and rank, the communication matrix: less than `analyze` does),
on a sample of the same trace. With pandas in this environment, the same by group-by beside it. All are compared
in events a second of a core: CPU seconds of this process.

    .venv/bin/python benchmarks/analysis.py                    10 million events of 64 ranks
    .venv/bin/python benchmarks/analysis.py --events 1000000 --ranks 4 --no-collectives
"""

import argparse
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _quick import add_quick

from lib_dlhpc.timeline.analysis import analyze
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.table import COLUMNS, Timeline

SAMPLE = 200_000  # events that the plain pass goes through
NAMES = ("step", "MPI_Isend", "MPI_Recv", "MPI_Allreduce")


def halo(events: int, ranks: int, collectives: bool, seed: int = 0) -> Timeline:
    """A trace of about `events` events; rank 1 computes a tenth more than the others."""
    each = 5 + collectives
    steps = max(events // (ranks * each), 1)
    rng = np.random.default_rng(seed)
    work = np.maximum(rng.normal(1e-3, 2e-5, (steps, ranks)), 1e-4)
    work[:, 1 % ranks] *= 1.1
    call, way = 1e-6, 2e-5
    start = np.empty((steps, ranks, each))
    stop = np.empty((steps, ranks, each))
    clock = np.zeros(ranks)
    for k in range(steps):
        begin = clock
        sent = begin + work[k]
        left, right = np.roll(sent, 1), np.roll(sent + call, -1)  # who sends to me, and when
        first = np.maximum(sent + 2 * call, left + way)
        second = np.maximum(first, right + way)
        start[k, :, 1], stop[k, :, 1] = sent, sent + call
        start[k, :, 2], stop[k, :, 2] = sent + call, sent + 2 * call
        start[k, :, 3], stop[k, :, 3] = sent + 2 * call, first
        start[k, :, 4], stop[k, :, 4] = first, second
        clock = second
        if collectives:
            clock = np.full(ranks, second.max() + way)
            start[k, :, 5], stop[k, :, 5] = second, clock
        start[k, :, 0], stop[k, :, 0] = begin, clock
    rank = np.arange(ranks)
    nobody = np.full(ranks, -1)
    kinds = np.array([KINDS.index(kind) for kind in ("region", "send", "receive", "collective")])
    calls = np.array([0, 1, 1, 2, 2, 3][:each])
    peer = np.stack([nobody, (rank + 1) % ranks, (rank - 1) % ranks, (rank - 1) % ranks])
    peer = np.concatenate([peer, [(rank + 1) % ranks], [nobody]])[:each].T
    # Messages of a step: to the right, to the left; then the collective.
    number = np.stack([nobody, rank, ranks + rank, (rank - 1) % ranks, ranks + (rank + 1) % ranks])
    number = np.concatenate([number, [np.full(ranks, 2 * ranks)]])[:each].T
    step = np.arange(steps).reshape(-1, 1, 1) * (2 * ranks + 1)
    match = np.where(number < 0, -1, number + step)
    shape = (steps, ranks, each)
    streams = [STREAMS.index("compute")] + [STREAMS.index("communication")] * (each - 1)
    table = {
        "rank": np.broadcast_to(rank.reshape(1, -1, 1), shape),
        "stream": np.broadcast_to(np.array(streams), shape),
        "kind": np.broadcast_to(kinds[calls], shape),
        "name": np.broadcast_to(calls, shape),
        "start": start,
        "stop": stop,
        "bytes": np.broadcast_to(np.array([0, 8192, 8192, 8192, 8192, 8][:each]), shape),
        "peer": np.broadcast_to(peer, shape),
        "comm": np.zeros(shape, np.int8),
        "match": match,
    }
    columns = {
        name: np.ascontiguousarray(table.pop(name).transpose(1, 0, 2)).reshape(-1).astype(kind)
        for name, kind in COLUMNS.items()
    }
    return Timeline(**columns, names=NAMES, ranks=ranks, source="measured")


def plain(timeline: Timeline) -> dict[str, float]:
    """What a script does, one event after another."""
    waits: dict[str, float] = {}
    regions: dict[tuple[str, int], float] = {}
    matrix: dict[tuple[int, int], int] = {}
    sends, receives = {}, {}
    for event in timeline:
        key = (event.name, event.rank)
        regions[key] = regions.get(key, 0.0) + event.stop - event.start
        if event.kind == "send":
            sends[event.match] = event
            pair = (event.rank, event.peer)
            matrix[pair] = matrix.get(pair, 0) + event.bytes
        elif event.kind == "receive":
            receives[event.match] = event
        elif event.kind == "collective":
            waits[event.name] = waits.get(event.name, 0.0) + event.stop - event.start
    late = 0.0
    for match, event in receives.items():
        if match in sends:
            late += max(min(sends[match].start, event.stop) - event.start, 0.0)
    return {**waits, "late sender": late}


class Peak:
    """The most memory this process has had, B, while the block runs: exact on Linux, elsewhere the peak since
    start."""

    def __enter__(self) -> "Peak":
        self.most, self._on = _resident(), True
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._on = False
        self._watch.join()

    def _look(self) -> None:
        while self._on:
            self.most = max(self.most, _resident())
            time.sleep(0.005)


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--events", type=int, default=10_000_000)
    options.add_argument("--ranks", type=int, default=64)
    options.add_argument("--no-collectives", action="store_true")
    options.add_argument("--shuffled", action="store_true", help="the events in no order")
    add_quick(options)
    given = options.parse_args()
    if given.quick:
        given.events, given.ranks = 20_000, 4
    trace = halo(given.events, given.ranks, not given.no_collectives)
    if given.shuffled:
        trace = trace.select(np.random.default_rng(0).permutation(len(trace)))
    size = sum(getattr(trace, column).nbytes for column in COLUMNS)
    print(f"{len(trace):,} events of {trace.ranks} ranks, {size / 2**20:,.0f} MiB of columns")
    with Peak() as peak:
        begin = time.perf_counter()
        text, rate = rated(analyze, trace)
        took = time.perf_counter() - begin
    print(
        f"analyze: {took:.2f} s ({len(trace) / rate:.2f} s of a core: {rate:,.0f} events/s),"
        f" peak {peak.most / 2**30:.2f} GiB, trace included"
    )
    for finding in text.findings[:3]:
        print(f"    {finding.kind}: {finding.sentence}")
    first = trace.select(slice(0, SAMPLE))
    _, slow = rated(plain, first)
    print(
        f"plain Python on {len(first):,} of them: {slow:,.0f} events/s: analyze is {rate / slow:.1f} times as fast"
    )
    try:
        import pandas
    except ImportError:
        print("pandas: not installed here; no figure of it")
        return 0
    _, grouped = rated(lambda trace: by_group(pandas, trace), trace)
    print(
        f"pandas {pandas.__version__}, grouping and matching only: {grouped:,.0f} events/s:"
        f" analyze is {rate / grouped:.1f} times as fast"
    )
    return 0


def rated(action: Callable[[Timeline], Any], trace: Timeline) -> tuple[Any, float]:
    """Return what an action makes of a trace, and its events a CPU second."""
    begin = time.process_time()
    found = action(trace)
    return found, len(trace) / (time.process_time() - begin)


def by_group(pandas: Any, trace: Timeline) -> None:
    """What a script does with pandas: time by name and rank, the matrix, messages matched."""
    frame = pandas.DataFrame({column: getattr(trace, column) for column in COLUMNS}, copy=False)
    frame["seconds"] = frame.stop - frame.start
    frame.groupby(["name", "rank"]).seconds.sum()
    sends = frame[frame.kind == KINDS.index("send")]
    sends.groupby(["rank", "peer"]).bytes.sum()
    both = frame[frame.kind == KINDS.index("receive")].merge(sends, on="match")
    both.groupby("rank_y").start_y.sum()


if __name__ == "__main__":
    sys.exit(main())
