"""Storage as queues: metadata servers and data servers, first come first served, and the waits of their clients.

A `Station` stores when each server is free; a FIFO queue needs no more. `arrivals` sends random requests (an open
queue), `clients` are readers that wait for each answer (a closed one), as SimPy processes. Both return the waits.
"""

import heapq
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.costs import storage_reads
from lib_dlhpc.costs.sample_path import sample_path
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment


class Station:
    """Equal servers behind one queue, first come first served; a request takes one of them for a while."""

    def __init__(self, servers: int = 1) -> None:
        self._free = [0.0] * servers  # a heap: when each server is next free, s
        self.busy = 0.0  # s of service by all servers in total
        self.waited = 0.0  # s that requests stood in the queue, all together
        self.requests = 0

    def take(self, now: float, service: float) -> float:
        """Return when service of `service` s starts for a request that arrives at `now`.

        Requests must arrive in order of time.
        """
        start = max(now, self._free[0])
        heapq.heapreplace(self._free, start + service)
        self.busy += service
        self.waited += start - now
        self.requests += 1
        return start

    @property
    def mean_wait(self) -> float:
        """Seconds that a request stands in the queue, on average."""
        return self.waited / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class StorageWaits:
    """What became of requests: how many a second, what they waited for, how busy each station was."""

    rate: float  # requests/s, or samples/s, over the second half of the time
    waits: dict[str, float]  # mean s in the queue of each station
    use: dict[str, float]  # share of the time in which a station's servers are busy


def arrivals(
    rate: float, service: float, requests: int, seed: int, servers: int = 1
) -> StorageWaits:
    """Send `requests` at random, `rate` a second (Poisson), to servers that take `service` s for each.

    Raises SpecError unless rate and service are above 0.
    """
    for name, value in (("rate", rate), ("service", service)):
        if not value > 0:
            raise SpecError(f"{name} = {value:g}: expected a number above 0.")
    station = Station(servers)
    times = np.random.default_rng(seed).exponential(1 / rate, requests).cumsum().tolist()
    for now in times:
        station.take(now, service)
    use = station.busy / (servers * times[-1])
    return StorageWaits(requests / times[-1], {"server": station.mean_wait}, {"server": use})


def clients(
    experiment: Experiment, samples: int = 20_000, readers: int | None = None, seed: int = 0
) -> StorageWaits:
    """Let readers fetch `samples` one after another as fast as they can, and queue for the experiment's storage.

    readers: in all, spread evenly over the nodes; by default [storage] workers of every device. A sample is
    looked up, read and decoded; one in the cache is only decoded; of a cooperative store, some lie on
    other nodes. Which: at random, by the shares of lib_dlhpc/costs/storage_reads.py. Where one server does metadata
    and data, short requests stand behind long ones: readers move in convoys, and few of them do not fill it.
    Raises SpecError without a tier or without readers.
    """
    import simpy

    storage = StoragePath(experiment, seed)
    number = int(experiment.storage.workers * experiment.devices) if readers is None else readers
    if number < 1:
        raise SpecError(
            f"readers = {number}: expected at least 1; storage.workers is the count per device."
        )
    env, left, done = simpy.Environment(), iter(range(samples)), []

    def reader(node: int) -> Generator[Any, Any, None]:
        for _ in left:
            stages = storage.stages(node, env.now)
            for until in stages:
                yield env.timeout(max(until - env.now, 0.0))
            done.append(env.now)

    for index in range(number):
        env.process(reader(index % storage.nodes))
    env.run()
    half = samples // 2
    span, end = done[-1] - done[half - 1], done[-1]
    return StorageWaits(
        (samples - half) / span if span else np.inf,
        {name: _mean([station.mean_wait for station in group]) for name, group in storage.of()},
        {name: _mean([station.busy / end for station in group]) for name, group in storage.of()},
    )


class StoragePath:
    """The stations of an experiment's storage, and the stages of a sample on its way through them."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        if not experiment.storage.tier:
            raise SpecError(
                'storage.tier = "": the data is in memory, and no reader queues for it.'
            )
        self.nodes = int(experiment.strategy.nodes)
        self._path = path = sample_path(experiment)
        self._missed = float(storage_reads.miss_share(experiment))
        self._remote = float(storage_reads.remote_share(experiment))
        self._random = np.random.default_rng(seed)
        copies = 1 if path.shared else self.nodes
        self._data = [Station() for _ in range(copies)]
        # One disk and kernel do both: who looks a file up queues with those who read.
        self._metadata = [Station() for _ in range(copies)] if path.apart else self._data
        self._nics = [Station() for _ in range(self.nodes)]

    def of(self) -> list[tuple[str, list[Station]]]:
        """Return the stations by the name of the limit that they are."""
        return [
            ("metadata servers", self._metadata),
            ("storage bandwidth", self._data),
            ("network", self._nics),
        ]

    def stages(self, node: int, now: float) -> Iterator[float]:
        """Yield the time until which a reader of `node` is held, stage by stage; resume at that time.

        An uncontended stage takes the time that lib_dlhpc/costs/storage_reads.py predicts.
        """
        path = self._path
        missed = self._missed >= 1 or self._random.random() < self._missed
        if missed:
            server = 0 if path.shared else node
            if any(path.lookup):
                now = self._metadata[server].take(now, path.lookup[0]) + path.lookup[1]
                yield now
            remote = self._remote > 0 and self._random.random() < self._remote
            if remote:
                server = self._elsewhere(node)
            start = self._data[server].take(now, path.read[0])
            if start > now:
                yield start
            now = start + path.read[1]
            if remote or path.shared:
                yield now
                start = self._nics[node].take(now, path.network[0])
                if start > now:
                    yield start
                now = start + (path.network[1] if remote else 0.0)
        yield now + path.decode

    def _elsewhere(self, node: int) -> int:
        """Return a random other node."""
        other = int(self._random.integers(self.nodes - 1))
        return other + (other >= node)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
