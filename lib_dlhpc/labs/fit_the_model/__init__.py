"""Lab 6, fit the model: a learner's formulas for memory and time, and a small run under a memory cap.

formulas.py      model state, activations and step time compared with the library's
small_run.py     the learner's small run: its predicted peak, its cap, the cheapest way below it
capped_run.py    a run in its own process under a cap that the system enforces
"""
