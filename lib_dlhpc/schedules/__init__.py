"""Who sends what to whom: an algorithm is written once, as rounds of messages.

rounds.py       Round, Schedule, messages
algorithms.py   ALGORITHMS by name; schedule(algorithm, ranks, elements)
compose.py      then, beside, within: schedules from schedules
rings.py        ring allreduce, reduce-scatter, allgather

A new algorithm is one function that yields rounds:

    def mine(ranks, elements):
        yield [(source, 0, 0, elements, "reduce") for source in range(1, 2)]
"""

from lib_dlhpc.schedules.algorithms import ALGORITHMS, COLLECTIVES, schedule
from lib_dlhpc.schedules.compose import beside, then, within
from lib_dlhpc.schedules.rounds import Round, Schedule, messages

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "Round",
    "Schedule",
    "beside",
    "messages",
    "schedule",
    "then",
    "within",
]
