"""A training step played out: every rank for itself, with jitter, on one Timeline.

step.py     simulate(experiment): compute, gradient buckets, exchange, update, input of every rank
compare.py  a simulated step beside the predicted one, and why they differ
rounds.py   the exchange round by round for all ranks at once: no contention beyond the NICs
"""

from lib_dlhpc.simulate.step import simulate

__all__ = ["simulate"]
