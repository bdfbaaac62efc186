"""One event table for all engines, and its analysis.

table.py         Timeline: the columns; from_rows, columns and join make one
measure.py       breakdown: the causes of a step; exposed communication, idle time, waits of each rank
bubble.py        mark_bubble: what of a pipeline's waits is its bubble
critical_path.py critical_path: the events that make the run as long as it is
coupled.py       where the ranks of a coupled workflow spend their time
spans.py         stretches of time of each rank, for questions about millions of events
analysis/        analyze: matrix, regions, waits, efficiencies, and what is wrong with a run
steps/           step_terms: what each rank does in each step, whatever framework wrote the trace
formats.py       read and write: files of any format, by the end of the name
    store.py        our own columns
    chrome.py       Chrome and Perfetto; json_events.py: one event after the other
    otf2.py         OTF2 archives; otf2_reading.py, otf2_definitions.py: read, those of others too
    kineto.py       torch.profiler, read
    xla.py          profiles of XLA (JAX), read; hlo.py: the sizes of its collectives
    tensorflow.py   what differs in TensorFlow's, which have the same form
    nsight.py       exports of Nsight Systems, read; collective_clock.py: one clock for such files
    chakra/         MLCommons Chakra: execution traces, which are graphs without times
    rows.py (growing columns), lanes.py (lanes of overlapping events), files.py (atomic writes)
recorder.py         region and Recorder: the events of a rank, recorded live
communicator.py     trace_comm: a communicator whose calls are recorded, with point_to_point.py,
                    collectives.py, requests.py and sizes.py
reads.py            trace_reads: a store whose reads are recorded
collecting.py       collect: what all ranks took down as a Timeline, with clocks.py (one clock for all) and
                    matching.py (which receive got which send)
collective_names.py one name for a collective, however a library calls it
overview.py         what a trace has, in words; printable.py: its names, cut to the width of a column
"""

from lib_dlhpc.timeline.bubble import mark_bubble
from lib_dlhpc.timeline.chrome import export_chrome
from lib_dlhpc.timeline.collecting import collect
from lib_dlhpc.timeline.communicator import trace_comm
from lib_dlhpc.timeline.critical_path import critical_path
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.measure import Measured, breakdown, exposed, idle, span, waits
from lib_dlhpc.timeline.reads import trace_reads
from lib_dlhpc.timeline.recorder import Recorder, region
from lib_dlhpc.timeline.table import Event, Timeline, columns, from_rows, join

__all__ = [
    "KINDS",
    "STREAMS",
    "Event",
    "Measured",
    "Recorder",
    "Timeline",
    "breakdown",
    "collect",
    "columns",
    "critical_path",
    "export_chrome",
    "exposed",
    "from_rows",
    "idle",
    "join",
    "mark_bubble",
    "region",
    "span",
    "trace_comm",
    "trace_reads",
    "waits",
]
