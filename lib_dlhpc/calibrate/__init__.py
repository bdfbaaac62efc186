"""Measure this machine, so that predictions need not guess it.

points.py     one measured point: what was read, by how many readers, how long it took
workspace.py  files to read, in a folder of their own that is always removed
reader.py     one reader process, run as a script: waits for a task, reads, says how long it took
readers.py    several of them that start together
others.py     what other processes do meanwhile: the calmer half of the repeats counts
cold.py       how the page cache is emptied, and which way was allowed
io.py         measure_io(folder): the points of a folder's file system
fit.py        fit_io(points): a StorageTier, each number with its interval
expected.py   what the formulas of a prediction say of a point
host.py       what was measured, in words: cores, memory, file system, kernel
report.py     the tier as TOML, the points as JSON

Rooms are entered on use: `from lib_dlhpc.calibrate.io import measure_io`.
"""
