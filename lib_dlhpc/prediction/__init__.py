"""Closed forms: the cost of a run, predicted before it runs.

step.py         predict(experiment): one step and the whole run; compute_scale: from a measured rate
breakdown.py    Breakdown: what it returns
bands.py        uncertainty of a prediction from the intervals of a measured machine
collectives.py  every allreduce in alpha, beta and gamma
asynchronous.py push, update and pull; the servers' limit; staleness
overlap.py      overlap of gradient buckets with backward
price.py        the price of a program (lib_dlhpc/program/): its longest path, term by term
split.py        a split network: its step;  hybrid.py: which rank holds what, offload traffic
pipelined.py    textbook formulas of pipelines, beside the longest path
bubbles.py      idle time and memory of 1F1B, ZB-H1 and DualPipe, side by side
memory.py       memory ledger of one device; checkpoint sizes
ledger.py       memory of each rank of a split network, over a step
holdings.py     what ranks of a pipeline hold while it runs, as columns: of one layout, or of many at once
offload.py      out of core: bytes, required bandwidth, exposed time
fit.py          configurations that fit in memory, and their cost
elementwise.py  split networks of an experiment with arrays, element by element
memory_timeline.py
                memory of a device over a step, layer by layer
intervals.py    checkpoint intervals: Young, Daly, exact; goodput
resilience.py   a run with failures: goodput, expected time, best checkpoint interval
silent.py       silent errors: how often to check, and what is lost
power_swings.py power of a facility over a step, and what floors, staggered jobs and storage cost
spares.py       nodes in repair: waiting for spares, or going on with fewer replicas
io.py           reading(experiment): the rate of each input limit, the bottleneck; volumes, nodes needed
striping.py     a checkpoint written to striped files: one for all, one per rank, through aggregators
caching.py      cache hit rates when every epoch reads everything in a new random order
profile.py      the run on the FanStore project's slides: its file system load, where its hours go
neighbors.py    halo exchange between neighbors: wait states
coupled.py      a simulation that feeds training: wait states, best placement
energy.py       explanations of energy, emissions
slack.py        passes of a pipeline slowed at no cost in time
accuracy.py     time and energy to an accuracy
walls.py        broken limits, and by how much
no_effect.py    settings without effect
sensitivity.py  which improvement helps most
forget.py       caches of layouts, emptied after many were tried
what_if.py      a changed experiment with its measured compute time, where that is still valid
sweep.py        millions of what-ifs in one call
points.py       a grid of any size, piece by piece
explain.py      every number explained: formula, inputs, source, range of validity. each in the file of its
                formula; those of costs/ in explain.py and explain_split.py. explanation.py: where a number comes from
validate.py     prediction against publication
trust.py        how far predictions of runs like one were off
traced.py       a real job's trace beside its prediction, and the calibration that it gives
"""

from typing import TYPE_CHECKING

from lib_dlhpc.lazy import lazy_names

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown
    from lib_dlhpc.prediction.sensitivity import sensitivity
    from lib_dlhpc.prediction.step import breakdown, compute_scale, predict
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

lazy_names(
    __name__,
    {
        "breakdown": ["Breakdown"],
        "sensitivity": ["sensitivity"],
        "step": ["breakdown", "compute_scale", "predict"],
        "sweep": ["Sweep", "sweep"],
        "what_if": ["what_if"],
    },
)
