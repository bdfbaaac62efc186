"""The calls of a recorded program, matched: each receive with its send, each collective with its members.

Everything after this file works on columns of row numbers, so that ten million events take seconds.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.kinds import KINDS
from lib_dlhpc.timeline.table import Timeline

Rows: TypeAlias = NDArray[Any]  # row numbers of a table

SEND, RECEIVE, COLLECTIVE, COMMUNICATION = (
    KINDS.index(kind) for kind in ("send", "receive", "collective", "communication")
)
# Who waits for whom, by the call's name in the MPI standard (without MPI_, I for immediate, v or w at the end, _).
ALL_TO_ALL = {"barrier", "allreduce", "allgather", "alltoall", "reducescatter", "bucket"} | {
    "reducescatterblock"
}
ONE_TO_ALL = {"bcast", "scatter"}
ALL_TO_ONE = {"reduce", "gather"}
# PyTorch's are _allgather_base, reduce_scatter_tensor_coalesced and the like.
ENDS = ("init", "coalesced", "tensor", "into", "base")
FREE, EACH_FOR_ALL, ALL_FOR_ROOT, ROOT_FOR_ALL = range(4)  # no rank waits; NxN; 1-to-N; N-to-1


@dataclass(frozen=True, eq=False)
class Calls:
    """Row numbers of a table in order (spans.in_order).

    sends[i] is what receives[i] got. members are the rows of collectives, and group the number of the
    collective of each; pattern (groups,): which ranks wait there.
    """

    table: Timeline
    sends: Rows
    receives: Rows
    members: Rows
    group: Rows
    pattern: NDArray[np.int8]

    @property
    def groups(self) -> int:
        """How many collectives there are."""
        return len(self.pattern)

    @cached_property
    def sizes(self) -> Rows:
        """How many ranks take part in each collective."""
        return np.bincount(self.group, minlength=self.groups)

    @cached_property
    def of_all(self) -> NDArray[np.bool_]:
        """Which collectives all ranks take part in: on the communicator of all, or on another as large."""
        everyone = np.zeros(self.groups, np.bool_)
        everyone[self.group[self.table.comm[self.members] == 0]] = True
        return everyone | (self.sizes == self.table.ranks)

    @cached_property
    def last_start(self) -> Array:
        """When the last member joined each collective, s."""
        return latest(self.table.start[self.members], self.group, self.groups)

    @cached_property
    def is_root(self) -> NDArray[np.bool_]:
        """Which members are the root of their collective."""
        return np.asarray(self.table.peer[self.members] == self.table.rank[self.members])


def calls(table: Timeline) -> Calls:
    """Return who sent what to whom and who met in which collective, of a table in order.

    Where the engine recorded no calls, rows a bucket are taken as collectives: joined by communicator,
    name, and the time over on their rank, where no rank left before the last one joined.
    """
    sent = np.flatnonzero((table.kind == SEND) & (table.match >= 0)).astype(np.int32)
    received = np.flatnonzero((table.kind == RECEIVE) & (table.match >= 0)).astype(np.int32)
    sends, receives = _matched(table, sent, received)
    members = np.flatnonzero((table.kind == COLLECTIVE) & (table.match >= 0)).astype(np.int32)
    keys = table.match[members]
    if not len(members) and not len(sent):
        members, keys = _buckets(table)
    found, first, group = _numbered(keys)
    pattern = _patterns(table)[table.name[members[first]]] if found else np.zeros(0, np.int8)
    return Calls(table, sends, receives, members, group, pattern)


def latest(times: Array, group: Rows, groups: int) -> Array:
    """Return the largest time of each group, shape (groups,); -inf of an empty one."""
    found = np.full(groups, -np.inf)
    np.maximum.at(found, group, times)
    return found


def _matched(table: Timeline, sent: Rows, received: Rows) -> tuple[Rows, Rows]:
    if not len(sent) or not len(received):
        return sent[:0], received[:0]
    low = min(table.match[sent].min(), table.match[received].min())
    high = max(table.match[sent].max(), table.match[received].max())
    if high - low > 4 * len(table) + 1000:  # numbers with wide gaps: look them up
        order = np.argsort(table.match[sent])
        at = np.searchsorted(table.match[sent][order], table.match[received])
        at = sent[order[np.minimum(at, len(sent) - 1)]]
        both = table.match[at] == table.match[received]
    else:
        sender = np.full(int(high - low) + 1, -1, np.int32)
        sender[table.match[sent] - low] = sent
        at = sender[table.match[received] - low]
        both = at >= 0
    return at[both], received[both]


def _numbered(keys: Rows) -> tuple[int, Rows, Rows]:
    """Return how many different keys there are, where each is first met, and the number of each key."""
    if not len(keys):
        return 0, np.zeros(0, np.int64), np.zeros(0, np.int32)
    low, high = int(keys.min()), int(keys.max())
    if high - low > 4 * len(keys) + 1000:
        found, first, number = np.unique(keys, return_index=True, return_inverse=True)
        return len(found), first, number.astype(np.int32)
    first = np.full(high - low + 1, -1, np.int64)
    first[(keys - low)[::-1]] = np.arange(len(keys) - 1, -1, -1)
    used = first >= 0
    number = (np.cumsum(used) - 1).astype(np.int32)
    return int(used.sum()), first[used], number[keys - low]


def _buckets(table: Timeline) -> tuple[Rows, Rows]:
    """Return the rows of buckets and the number of the exchange each belongs to."""
    rows = np.flatnonzero(table.where("communication", "communication") & (table.peer < 0))
    if not len(rows):
        return rows.astype(np.int32), rows
    rank, name, comm = table.rank[rows], table.name[rows], table.comm[rows]
    order = np.lexsort((rank, name, comm))  # stable: rows of a rank stay in order of time
    new = np.ones(len(rows), np.bool_)
    new[1:] = np.diff(rank[order]) != 0
    new[1:] |= (np.diff(name[order]) != 0) | (np.diff(comm[order]) != 0)
    run = np.cumsum(new) - 1
    nth = np.empty(len(rows), np.int64)
    nth[order] = np.arange(len(rows)) - np.flatnonzero(new)[run]
    found = np.stack([comm, name, nth])
    key = np.unique(found, axis=1, return_inverse=True)[1].reshape(-1)
    groups = int(key.max()) + 1
    left = -latest(-table.stop[rows], key, groups)
    close = 1e-9 * (table.stop.max() - table.start.min())
    good = left >= latest(table.start[rows], key, groups) - close
    good &= np.bincount(key, minlength=groups) > 1
    kept = good[key]
    return rows[kept].astype(np.int32), key[kept]


def _patterns(table: Timeline) -> NDArray[np.int8]:
    """Return the pattern of each name, shape (names,)."""
    return np.array([pattern_of(name) for name in table.names], np.int8)


def pattern_of(name: str) -> int:
    """Return the pattern of a collective by its name: who waits for whom; 0 if unknown."""
    plain = name.lower().removeprefix("mpi_").replace("_", "")
    for end in ENDS:
        plain = plain.removesuffix(end)
    for word in (plain, plain.removeprefix("i")):
        for short in (word, word[:-1] if word.endswith(("v", "w")) else word):
            if short in ONE_TO_ALL:
                return ALL_FOR_ROOT
            if short in ALL_TO_ONE:
                return ROOT_FOR_ALL
            if short in ALL_TO_ALL:
                return EACH_FOR_ALL
    return FREE
