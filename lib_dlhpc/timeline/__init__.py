"""One event table for all engines.

table.py   Timeline: the columns; from_rows, columns and join make one
"""

from lib_dlhpc.timeline.table import KINDS, STREAMS, Event, Timeline, columns, from_rows, join

__all__ = ["KINDS", "STREAMS", "Event", "Timeline", "columns", "from_rows", "join"]
