"""One event table for all engines, and what it says.

table.py      Timeline: the columns; from_rows, columns and join make one
measure.py    breakdown: the causes of a step; exposed communication, idle time, waits of each rank
bubble.py     mark_bubble: what of a pipeline's waits is its bubble
critical.py   critical_path: the events that make the run as long as it is
chrome.py     export_chrome: a file for Chrome and Perfetto
"""

from lib_dlhpc.timeline.bubble import mark_bubble
from lib_dlhpc.timeline.chrome import export_chrome, trace_events
from lib_dlhpc.timeline.critical import critical_path
from lib_dlhpc.timeline.measure import Measured, breakdown, exposed, idle, span, waits
from lib_dlhpc.timeline.table import KINDS, STREAMS, Event, Timeline, columns, from_rows, join

__all__ = [
    "KINDS",
    "STREAMS",
    "Event",
    "Measured",
    "Timeline",
    "breakdown",
    "columns",
    "critical_path",
    "export_chrome",
    "exposed",
    "from_rows",
    "idle",
    "join",
    "mark_bubble",
    "span",
    "trace_events",
    "waits",
]
