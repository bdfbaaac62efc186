"""Closed forms: what a run costs, before anything runs.

breakdown.py    predict(experiment): one step and the whole run; compute_scale: from a measured rate
collectives.py  every allreduce in alpha, beta and gamma
asynchronous.py push, update and pull; the servers' limit; staleness
overlap.py      gradient buckets against backward
hybrid.py       a step of a network that is split; with
                pipelined.py, the time of a pipeline, and sharding.py, what replicas exchange
memory.py       ledger of one device; checkpoint sizes
ledger.py       what each rank of a split network holds, and when
offload.py      out of core: bytes, bandwidth needed, what shows of it
fit.py          what makes a run fit, and what that costs
each.py         split networks of an experiment with arrays, one by one
course.py       what a device holds in the course of a step, layer by layer
intervals.py    how often to save: Young, Daly, exact; goodput
resilience.py   what failures make of a run: goodput, expected time, the interval to choose
io.py           reading(experiment): what input allows and which limit holds; volumes, nodes needed
caching.py      hit rates of a cache when every epoch reads everything in a fresh order
profile.py      the founding slides' run: what it asks of the file system, where its hours go
neighbours.py   a program of neighbours: who waits how long for whom
coupled.py      a simulation that feeds training: who waits for whom, which placement is best
energy.py       joules of a step
walls.py        which limit is broken, by how much
void.py         settings that bring nothing as the rest stands
sensitivity.py  what would help most
what_if.py      an experiment changed, its measured compute time kept where it holds
sweep.py        millions of what-ifs in one call
explain.py      every number opened: formula, inputs, source, range of validity; with
                explanation.py, where a number comes from, explain_input.py, explain_asynchronous.py and
                explain_split.py
validate.py     prediction against publication
"""

from lib_dlhpc.prediction.breakdown import Breakdown, breakdown, compute_scale, predict
from lib_dlhpc.prediction.sensitivity import sensitivity
from lib_dlhpc.prediction.sweep import Sweep, sweep
from lib_dlhpc.prediction.what_if import what_if

__all__ = [
    "Breakdown",
    "Sweep",
    "breakdown",
    "compute_scale",
    "predict",
    "sensitivity",
    "sweep",
    "what_if",
]
