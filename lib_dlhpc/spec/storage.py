"""Storage: where samples come from, and how they are read."""

import math

from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.schema import choice, number, text, whole

ACCESSES = ("stream", "stage", "cooperative")
FORMATS = ("files", "packed")


@dataclass(frozen=True)
class Storage:
    """Source of the samples and access pattern; an empty tier means that samples are in memory.

    A run reads as described here, from files of this machine that are throttled to the tier (training/input/); the
    listing and copying before its first step are predicted only.

    access: "stream" reads from `tier` in every epoch; "stage" copies the whole data set to the `local` tier
    of each node before the first step; "cooperative" distributes it over the nodes' local tiers, with
    `replication` copies and all metadata in memory, and reads remote samples over the network (FanStore).
    """

    tier: str = text()
    operations_per_file: float = number(default=3.0)  # stat, open, close
    access: str = choice(ACCESSES, default="stream")
    local: str = text()  # a node-local tier, for "stage" and "cooperative"
    format: str = choice(FORMATS, default="files")  # packed: no metadata operations per sample
    reads_per_file: float = number(default=1.0)
    compression: float = number(default=1.0, positive=True)  # compression ratio
    # Decompressed output of one reader, per second.
    decompress: float = number("B/s", default=math.inf, positive=True)
    decode: float = number("s", default=0.0)  # CPU time of a reader, per sample
    workers: int = whole(default=0, least=0)  # readers per device; 0: as many as needed
    prefetch: int = whole(default=0, least=0)  # batches ahead; 0: as many as needed
    cache: float = number("B", default=0.0)  # of a node's memory, for samples
    replication: int = whole(default=1)  # copies of the data set, for "cooperative"
