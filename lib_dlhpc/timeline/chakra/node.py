"""A node of an execution trace, in SI units, and the trace of all ranks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

LONGEST = 60  # characters of a name in an error
# By the number in `comm_type`.
COLLECTIVES = (
    *("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST"),
    *("ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"),
)


class Node(NamedTuple):
    """What a rank does: it starts when the nodes in `after` are done.

    type: COMP_NODE, COMM_COLL_NODE, COMM_SEND_NODE, COMM_RECV_NODE, MEM_LOAD_NODE, MEM_STORE_NODE; others are
    instants. bytes: B that a computation reads and writes, that a message has, or that each rank gives to a collective.
    """

    id: int
    name: str
    type: str
    after: tuple[int, ...] = ()
    seconds: float = 0.0  # as recorded; 0: not recorded
    flop: float = 0.0
    bytes: float = 0.0
    collective: str = ""  # one of COLLECTIVES
    group: str = ""  # name of the process group; "": all ranks
    peer: int = -1  # to which a message is sent, or from which it is received
    tag: int = 0
    host: bool = False  # work of the processor beside an accelerator
    kind: str = ""  # of a computation: forward, backward, update; "": not known
    algorithm: str = ""  # of a collective; "": not known


@dataclass(frozen=True, eq=False)
class Trace:
    """The nodes of every rank, in the order of its file."""

    files: tuple[Path, ...]  # by rank
    nodes: tuple[tuple[Node, ...], ...]  # by rank
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # ranks of process groups

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.files)

    def words(self, rank: int, node: Node) -> str:
        """Return what an error calls a node: file, number and name."""
        return f"{self.files[rank]}: {words(node.id, node.name)}"


def words(number: int, name: str) -> str:
    """Return number and name of a node, printable and not long."""
    shown = "".join(each if each.isprintable() else "?" for each in name[:LONGEST])
    return f"node {number} ({shown}{'...' if len(name) > LONGEST else ''})"
