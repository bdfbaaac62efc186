"""Lab 6, fit the model: formulas for memory and time, a choice of strategy, and a small run under a memory cap.

formulas.py      model state, activations and step time compared with the library's
estimates.py     a learner's estimate of a whole strategy, term by term
choice.py        a learner's function that chooses a strategy, on a run that is shown and on a hidden one
small_run.py     the learner's small run: its predicted peak, its cap, the cheapest way below it
capped_run.py    a run in its own process under a cap that the system enforces
"""
