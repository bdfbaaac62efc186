"""Who sends what to whom: an algorithm is written once, as rounds of messages.

rounds.py       Round, Schedule, messages: the data
algorithms.py   ALGORITHMS by name; schedule(algorithm, ranks, elements)
algorithm.py    Algorithm: the record of one: rounds, closed form, words, options
choice.py       which one a library would choose for a size and a network
network.py      the two levels that closed forms are of; Cost
compose.py      then, beside, within: schedules from schedules
rings.py        ring: allreduce, reduce-scatter, allgather
doubling.py     recursive doubling, Rabenseifner
trees.py        binomial trees, van de Geijn's broadcast, a chain
double_tree.py  two binary trees at once
hierarchy.py    hierarchical, 2-D torus
levels.py       reduce-scatter and allgather level by level
all_to_all.py   all-to-all level by level
exchange.py     parameter server, all-to-all, Bruck's allgather, halos
goals.py        what each collective is to achieve
checks.py       ProofError; messages between ranks and elements that exist
faults.py       what can be wrong, in words
proof.py        prove(schedule): every contribution exactly once, or a ProofError that says where not
price.py        price(schedule, alpha, beta, gamma): seconds by cause
execute.py      execute(schedule, comm, buffer): for real, with MPI
halves.py       reduce-scatter and allgather by a ring, of arrays that lie anywhere
pipeline.py     GPipe, 1F1B, interleaved 1F1B as streams of instructions
pipeline_proof.py   their proof, timetable, bubble

A new algorithm is one function that yields rounds:

    def everyone_to_everyone(ranks, elements):
        for step in range(1, ranks):
            yield [(r, (r + step) % ranks, 0, elements, "reduce") for r in range(ranks)]

    prove(schedule(everyone_to_everyone, ranks=4, elements=100))

That one fails, and the error says why: ranks pass on what they were given, so it arrives twice.
"""

from lib_dlhpc.schedules.algorithms import ALGORITHMS, COLLECTIVES, schedule
from lib_dlhpc.schedules.checks import ProofError
from lib_dlhpc.schedules.compose import beside, then, within
from lib_dlhpc.schedules.execute import execute, prepared
from lib_dlhpc.schedules.network import Cost
from lib_dlhpc.schedules.pipeline import PIPELINES
from lib_dlhpc.schedules.pipeline_proof import prove_pipeline, timetable
from lib_dlhpc.schedules.price import price
from lib_dlhpc.schedules.proof import Proof, prove
from lib_dlhpc.schedules.rounds import Round, Schedule, messages

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "PIPELINES",
    "Cost",
    "Proof",
    "ProofError",
    "Round",
    "Schedule",
    "beside",
    "execute",
    "messages",
    "prepared",
    "price",
    "prove",
    "prove_pipeline",
    "schedule",
    "then",
    "timetable",
    "within",
]
