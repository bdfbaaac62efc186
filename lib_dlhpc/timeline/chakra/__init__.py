"""Execution traces of MLCommons Chakra: what each rank does as a graph, one file a rank.

An execution trace has no times of its own: its nodes have durations, sizes and dependencies, and a simulator finds
when each one runs. So it is no Timeline; simulation/chakra/ makes one of it.

schema.py   the messages of a file, by their published field numbers
node.py     Node and Trace: what is read and written of them
files.py    read_trace and write_trace: a folder with a file for each rank
"""

from lib_dlhpc.timeline.chakra.files import read_trace, write_trace
from lib_dlhpc.timeline.chakra.node import COLLECTIVES, Node, Trace

__all__ = ["COLLECTIVES", "Node", "Trace", "read_trace", "write_trace"]
