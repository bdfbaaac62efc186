"""Scale out: many points or seeds cut into chunks, done here, over processes, over Dask, or as jobs of a batch system.

A chunk is a pure function of its number, and results are merged in the order of chunks: wherever they run, the result
is the same to the bit on the same kind of processor.

work.py      Work: a function of a chunk's number, as text that any process can read; results in a folder
places.py    Place: where chunks are done; place("dask") reads it from text
progress.py  Progress: how much is done, every few seconds
engines.py   results(work, where): of all chunks in order, from one process, several, or Dask
jobs.py      the same as a job array, or as jobs of this machine
task.py      the program of such a job
sweep.py     sweep_points: predictions of a grid of any size, reduced to the best; rows as files
seeds.py     simulate_seeds: a step simulated with many seeds
"""

from lib_dlhpc.scale_out.engines import results
from lib_dlhpc.scale_out.places import HERE, TASKS, LostError, Place, place
from lib_dlhpc.scale_out.progress import Progress
from lib_dlhpc.scale_out.work import Arrays, Work

__all__ = ["HERE", "TASKS", "Arrays", "LostError", "Place", "Progress", "Work", "place", "results"]
