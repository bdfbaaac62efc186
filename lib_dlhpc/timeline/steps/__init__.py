"""One analysis of the steps of a trace, whatever framework or engine wrote it.

edges.py    find_steps: when each step of each rank begins and ends
terms.py    step_terms: what each rank does in each step
report.py   the terms of one trace, or of several side by side, in words and as a dictionary
"""

from lib_dlhpc.timeline.steps.edges import find_steps
from lib_dlhpc.timeline.steps.terms import Exchange, StepTerms, step_terms

__all__ = ["Exchange", "StepTerms", "find_steps", "step_terms"]
