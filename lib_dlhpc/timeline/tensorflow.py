"""TensorFlow's profiles: what differs from XLA's (xla.py) in the Chrome form of the same profiler.

    long_name "path:Type" of an operation named "Type"     stream compute, kind kernel; a collective of TensorFlow or
                                                            Horovod: stream communication, kind collective
    IteratorGetNextOp::DoCompute                            stream input, kind input: the wait for tf.data
    step_num                                                stream host, kind step: tf.profiler.experimental.Trace

Where a device has rows "Stream #", they are its kernels, and operations are the host's, which are left out. So are the
operations that tf.data carries out ahead, on threads of its own, and functions, which contain others. Operations that
jit_compile compiled are XLA's. The profile has no sizes of collectives. Tried on TensorFlow 2.21, on processors.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from lib_dlhpc.timeline.collective_names import collective_name

ITERATOR = "IteratorGetNextOp::DoCompute"
AHEAD = "tf_data"  # how the threads of tf.data are named
FUNCTIONS = ("PartitionedCall", "While", "If", "Case")  # how the types of what contains others end
EXCHANGE = re.compile(r"Collective[A-Z]|Horovod[A-Z]|Nccl[A-Z]|nccl(Dev)?Kernel|rccl(Dev)?Kernel")


class Row(NamedTuple):
    """Stream, kind, name and bytes of an event."""

    stream: str
    kind: str
    name: str
    bytes: int = 0


def row_of(
    name: str, args: Mapping[str, Any], thread: str, on_stream: bool, has_streams: bool
) -> Row | None:
    """Return the row of an event that is no operation of XLA; None: it is left out.

    thread: its name. on_stream: whether it is a device's stream; has_streams: whether there is one in the file.
    """
    if name == ITERATOR and not thread.startswith(AHEAD):
        size = str(args.get("element_size", ""))
        return Row("input", "input", name, int(size) if size.isdigit() else 0)
    if on_stream or (not has_streams and _is_operation(name, args, thread)):
        what = collective_name(name) if EXCHANGE.match(name) else "communication"
        exchange = what != "communication"
        return (
            Row("communication", "collective", what) if exchange else Row("compute", "kernel", name)
        )
    return None


def _is_operation(name: str, args: Mapping[str, Any], thread: str) -> bool:
    path, _, kind = str(args.get("long_name", "")).rpartition(":")
    own = bool(path) and kind == name and not thread.startswith(AHEAD)
    return own and not name.endswith(FUNCTIONS)
