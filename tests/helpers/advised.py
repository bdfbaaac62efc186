"""The advice at the end of a search that a page would interrupt."""

from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.changes.advice import Advice, Apply, searched
from lib_dlhpc.prediction.what_if import what_if


def advise(p: Breakdown, applied: Apply | None = None) -> Advice:
    """Return what to change next in a predicted run; applied: the experiment after changes, by default a what-if."""
    search = searched(p, applied or (lambda changes: what_if(p.experiment, changes)))
    while True:
        try:
            next(search)
        except StopIteration as end:
            advice: Advice = end.value
            return advice
