"""Throttle: readers meet the servers of a storage tier, which all ranks of a machine share.

A token bucket: for each server, the moment at which it is free next, in memory that the ranks share. A sample takes its
turn at each server (lib_dlhpc/costs/sample_path.py, as in the simulator); a read is over when that is, or when the real
read is, whichever comes later. A shared tier is one for all nodes, any other is in each node. Ranks on several machines
have an equal part of a shared tier on each.

The cache of a node has the samples that were read first, as many as fit. Their files are read again, from the page
cache and without throttle. Of the training samples it has the fraction that it would have of the whole data set.
"""

import mmap
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import mkstemp
from threading import Lock
from typing import Any

import numpy as np

from lib_dlhpc.costs import storage_reads
from lib_dlhpc.costs.sample_path import sample_path
from lib_dlhpc.spec.experiment import Experiment


class Shared:
    """Zeros that the ranks of a machine share; made by all ranks of a communicator."""

    def __init__(self, comm: Any, size: int) -> None:
        names = comm.bcast(comm.gather(platform.node()))
        self.machines = len(set(names))
        first, path = names.index(platform.node()), ""
        if first == comm.rank:
            file, path = mkstemp(prefix="dlhpc-input-")
            os.truncate(file, size)
            os.close(file)
        self._file = os.open(comm.bcast(comm.gather(path))[first], os.O_RDWR)
        comm.Barrier()
        if path:
            os.unlink(path)  # its memory is freed with the last rank
        self.memory, self._threads = mmap.mmap(self._file, size), Lock()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other thread of any rank into its block."""
        try:
            from fcntl import LOCK_EX, LOCK_UN, flock
        except ImportError:  # Windows has no such lock: ranks may take a server at once there
            with self._threads:
                yield
            return
        with self._threads:  # the file's lock is of a process
            flock(self._file, LOCK_EX)
            try:
                yield
            finally:
                flock(self._file, LOCK_UN)

    def close(self) -> None:
        """Release the file; the memory goes with its last array."""
        os.close(self._file)


class Throttle:
    """The servers of a tier and the caches of the nodes, as one rank's readers meet them; thread-safe."""

    def __init__(self, experiment: Experiment, samples: int, comm: Any) -> None:
        """samples: of the data set. All ranks call this."""
        self._path = path = sample_path(experiment)
        self._nodes, storage = int(experiment.strategy.nodes), experiment.storage
        self._node = min(comm.rank // int(experiment.devices_per_node), self._nodes - 1)
        self._copies = int(storage.replication) if storage.access == "cooperative" else self._nodes
        tiers = 1 if path.shared else self._nodes
        # Index of the first data server; metadata servers come before it.
        self._data = tiers if path.apart else 0
        self._nics = self._data + tiers
        servers = self._nics + self._nodes
        self._shared = Shared(comm, 8 * (servers + self._nodes) + self._nodes * samples)
        self._slower = self._shared.machines if path.shared else 1
        self._free = np.frombuffer(self._shared.memory, np.float64, servers)
        self._held = np.frombuffer(self._shared.memory, np.int64, self._nodes, 8 * servers)
        cached = np.frombuffer(self._shared.memory, np.bool_, offset=8 * (servers + self._nodes))
        self._cached = cached.reshape(self._nodes, samples)
        self._room = int(float(storage_reads.cached_share(experiment)) * samples)

    @property
    def decode(self) -> float:
        """CPU s of a reader for a sample, cached or not."""
        return self._path.decode

    def pass_through(self, sample: int, now: float, readers: int = 1) -> tuple[float, float]:
        """Return when a sample that is asked for at `now` (s of a clock) is served, and when it has come.

        Both are `now` if it is cached. readers: ranks that read the same samples; each pays its part of the servers'
        time.
        """
        path, node = self._path, self._node
        if self._room and self._cached[node, sample]:
            return now, now
        server = 0 if path.shared else node
        with self._shared.locked():
            if any(path.lookup):
                now = (
                    self._take(server, now, path.lookup[0] * self._slower / readers)
                    + path.lookup[1]
                )
            remote = not path.shared and self._is_remote(sample)
            if remote:
                server = sample % self._nodes
            served = self._take(self._data + server, now, path.read[0] * self._slower / readers)
            now = served + path.read[1]
            if remote or path.shared:
                now = self._take(self._nics + node, now, path.network[0] / readers)
                now += path.network[1] if remote else 0.0
            if self._held[node] < self._room and not self._cached[node, sample]:
                self._cached[node, sample] = True
                self._held[node] += 1
        return served, now

    def close(self) -> None:
        """Release the shared memory."""
        self._shared.close()

    def _take(self, server: int, now: float, service: float) -> float:
        """Return when the server starts on a request, first come first served."""
        start = max(now, float(self._free[server]))
        self._free[server] = start + service
        return start

    def _is_remote(self, sample: int) -> bool:
        """Return whether a sample is on other nodes only: copies are on nodes one after another."""
        return (self._node - sample) % self._nodes >= self._copies
