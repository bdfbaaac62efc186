"""Outputs of other tools as measurements of a machine; calibration/imported_machine.py fits a machine to them.

measurement.py     what a file tells: times of a law, values, notes; each with its file and lines
tools.py           which tool wrote a text
nccl_tests.py      collectives of devices          osu.py, imb.py     messages and collectives of MPI
ior.py, fio.py     reads and writes of files       mdtest.py          operations on metadata
dlio.py            input of emulated training      stream.py          memory bandwidth
darshan.py         I/O of a job
nvidia_smi.py      devices of a node               hwloc.py           sockets, memory and adapters of a node
simgrid.py         hosts and links of a platform
"""

from lib_dlhpc.importing.measurements.measurement import (
    File,
    Measurement,
    Note,
    Source,
    Timed,
    Value,
)
from lib_dlhpc.importing.measurements.tools import measurements_of

__all__ = ["File", "Measurement", "Note", "Source", "Timed", "Value", "measurements_of"]
