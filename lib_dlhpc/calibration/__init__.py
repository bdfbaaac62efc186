"""Measure this machine: the numbers that predictions need, with intervals.

points.py          one measured point: what was read, by how many readers, how long it took
workspace.py       files to read, in a temporary folder that is always removed
reader.py          one reader process, run as a script: waits for a task, reads, reports its time
readers.py         several reader processes that start together
other_processes.py load by other processes: only the calmer half of the repeats counts
page_cache.py      ways to drop the page cache, and which one is permitted
io.py              measure_io(folder): the points of a folder's file system
fit.py             fit_io(points): a StorageTier, each number with its interval
machine.py         measure_machine(ranks, seconds, run), fit_machine(raw): a whole machine, with intervals
merge.py           merge the results of repeated program runs
worker.py          one MPI rank: numpy, messages, collectives (the trainer's layers: training/probe.py)
layers.py          fit: rates of each kind of layer and optimizer, fixed cost of a pass, jitter
step_fit.py        fit: slowdown of whole steps over the sum of their parts (runs: training/probe_steps.py)
messages.py        fit: latency, bandwidth, eager to rendezvous switch
host_link.py       fit: the host link of offloading (points: training/probe_disk.py)
numbers.py         fit: numpy's matrix products, calls and sums
robust.py          robust statistics of noisy repeats; fits with 90% intervals
machine_report.py  the machine as TOML, a table, JSON
device/            the same of a device of torch: `dlhpc calibrate --device`
expected.py        the predicted time of a point
host.py            description of the host: cores, memory, file system, kernel
report.py          the tier as TOML, the points as JSON

Import submodules directly: `from lib_dlhpc.calibration.io import measure_io`.
"""
