"""Measure this machine, so that predictions need not guess it.

points.py     one measured point: what was read, by how many readers, how long it took
workspace.py  files to read, in a folder of their own that is always removed
reader.py     one reader process, run as a script: waits for a task, reads, says how long it took
readers.py    several of them that start together
others.py     what other processes do meanwhile: the calmer half of the repeats counts
cold.py       how the page cache is emptied, and which way was allowed
io.py         measure_io(folder): the points of a folder's file system
fit.py        fit_io(points): a StorageTier, each number with its interval
machine.py    measure_machine(ranks, seconds, run), fit_machine(raw): a whole machine, with intervals
joined.py     what a program has told in several turns, as one
worker.py     one rank of it: numpy, messages, collectives (the trainer's layers: training/probe.py)
layers.py     fit: a pace for each kind of layer and update, the cost of a pass outside them, jitter
whole.py      fit: what whole steps say beside their parts (runs: training/probe_steps.py)
messages.py   fit: latency, bandwidth, where messages change their protocol
away.py       fit: the way to where out-of-core training leaves things (points: training/probe_disk.py)
numbers.py    fit: products, calls and sums of numpy
robust.py     what counts of noisy repeats; fits with 90 % intervals
machine_report.py  the machine as TOML, a table, JSON
expected.py   what the formulas of a prediction say of a point
host.py       what was measured, in words: cores, memory, file system, kernel
report.py     the tier as TOML, the points as JSON

Rooms are entered on use: `from lib_dlhpc.calibration.io import measure_io`.
"""
