"""Closed forms: the cost of a run, predicted before it runs.

step.py         predict(experiment): one step and the whole run; compute_scale: from a measured rate
split_step.py   the step of a split network
price.py        the price of a program (lib_dlhpc/program/): its longest path, term by term
elementwise.py  split networks of an experiment with arrays, element by element
breakdown.py    Breakdown: what predict returns
explanation.py  Explanation: where a number comes from
accuracy.py     time and energy to an accuracy
what_if.py      a changed experiment with its measured compute time, where that is still valid
clear_caches.py caches of layouts, emptied after many were tried

memory/        the ledger of a device's memory, offloading
communication/ collectives, overlap, asynchronous updates, neighbors, coupled workflows
pipelines/     textbook formulas and bubbles
storage/       input, caches, striped files
failures/      checkpoint intervals, spares, silent errors
energy/        energy, power swings, slack
limits/        limits that a run breaks, and what fits
changes/       advice, sensitivity, settings without effect
sweeps/        many predictions in one call
validation/    predictions beside publications, and how far to trust one
measured/      calibration from a run or a trace; uncertainty
reports/       tables, words, and every number explained
"""

from typing import TYPE_CHECKING

from lib_dlhpc.lazy import lazy_names

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown
    from lib_dlhpc.prediction.changes.sensitivity import sensitivity
    from lib_dlhpc.prediction.step import breakdown, compute_scale, predict
    from lib_dlhpc.prediction.sweeps.sweep import Sweep, sweep
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
        "changes.sensitivity": ["sensitivity"],
        "step": ["breakdown", "compute_scale", "predict"],
        "sweeps.sweep": ["Sweep", "sweep"],
        "what_if": ["what_if"],
    },
)
