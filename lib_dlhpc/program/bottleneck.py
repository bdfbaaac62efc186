"""What limits passes: arithmetic, memory, or neither."""

from typing import Any, NamedTuple


class BoundShares(NamedTuple):
    """The fraction of the time of passes that arithmetic limits, and memory; in the rest a device waits."""

    arithmetic: Any
    memory: Any
