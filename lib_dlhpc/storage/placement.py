"""Placement: which ranks hold which partition, and which holder serves a rank."""

from collections.abc import Sequence

from lib_dlhpc.storage.errors import StoreError

Holders = tuple[tuple[int, ...], ...]  # of each partition, its ranks


def holders(partitions: int, nodes: Sequence[int], replication: int = 1) -> Holders:
    """Return the ranks that hold each partition: all of node p and of the next ones, cyclically.

    nodes: the node of each rank, counted from 0. Raises StoreError unless 1 <= replication <= number of nodes.
    """
    count = max(nodes) + 1
    if (
        isinstance(replication, bool)
        or not isinstance(replication, int)
        or not 1 <= replication <= count
    ):
        raise StoreError(
            f"replication: {replication!r} copies on {count} node{'s' * (count > 1)}. Legal: a whole number from 1 to"
            f" {count}; ranks_per_node = 1 lets each rank stand for a node."
        )
    return tuple(
        tuple(rank for rank, node in enumerate(nodes) if (node - part) % count < replication)
        for part in range(partitions)
    )


def checked(place: Sequence[Sequence[int]], partitions: int, ranks: int) -> Holders:
    """Return an explicit placement. Raises StoreError naming a partition without a rank."""
    if len(place) != partitions:
        raise StoreError(f"place: {len(place)} entries for a store of {partitions} partitions.")
    for part, held in enumerate(place):
        if not held:
            raise StoreError(f"place: no rank holds partition {part}.")
        for rank in held:
            if rank not in range(ranks):
                raise StoreError(
                    f"place: partition {part} is to be on rank {rank!r}. Legal: 0 to {ranks - 1}."
                )
    return tuple(tuple(held) for held in place)


def sources(place: Holders, rank: int) -> list[int]:
    """Return the rank that serves `rank` each partition: itself if possible, else a holder, round-robin."""
    return [
        rank if rank in held else held[(rank + part) % len(held)] for part, held in enumerate(place)
    ]
