"""Plan: the best of all legal layouts of a run, with a proof, or the gap to a lower bound.

training_runs.py
            each batch, and each setting that changes accuracy, as a run of its own; refusals
search_space.py every combination of the fields of a layout, as columns; illegal ones counted by reason
bound.py        a lower bound of the step of each, on arrays: never above what predict says
passes.py       what the bounds are of: the passes of an unsplit pipeline
block_bound.py  the same of passes through stages of whole blocks
memory_bound.py the same of its memory
cut_bound.py    tighter bounds of both, by the stages of a layout: before it is predicted
candidates.py   the bounds of all, found in chunks, here or elsewhere
layout_groups.py
            layouts with the same passes, and what is known of them
prices.py       exact prices of many layouts at once, as arrays
search.py       plan(experiment): exact predictions in the order of the bound, until no other can be better
failures.py     the chosen layouts with failures: simulated, beside the closed form
model_sizes.py  which model size reaches the least loss within a budget: planned rates joined with a scaling law
pareto_front.py the Pareto front of several objectives, and its knee
result.py       Plan: what it returns; each Choice is an experiment
"""

from lib_dlhpc.planner.model_sizes import LAYERS, Size, Trained, guessed, sizes, trained
from lib_dlhpc.planner.result import Choice, Plan
from lib_dlhpc.planner.search import plan

__all__ = ["LAYERS", "Choice", "Plan", "Size", "Trained", "guessed", "plan", "sizes", "trained"]
