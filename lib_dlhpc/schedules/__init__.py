"""Communication schedules: each algorithm is written once, as rounds of messages.

rounds.py       Round, Schedule, messages: the data
algorithms.py   ALGORITHMS by name; schedule(algorithm, ranks, elements)
algorithm.py    Algorithm: the record of one: rounds, closed form, label, options
choice.py       algorithm selection by size and network, as in MPI and NCCL
network.py      the two-level network of the closed forms; Cost
compose.py      then, beside, within: composition of schedules
rings.py        ring: allreduce, reduce-scatter, allgather
doubling.py     recursive doubling, Rabenseifner
trees.py        binomial trees, van de Geijn's broadcast, a chain
double_tree.py  double binary tree
hierarchy.py    hierarchical, 2-D torus
levels.py       reduce-scatter and allgather level by level
in_network.py   SHARP and NVLS: switches that add what passes them
all_to_all.py   all-to-all level by level
exchange.py     parameter server, all-to-all, Bruck's allgather, halos
goals.py        the postcondition of each collective
checks.py       ProofError; range checks of ranks and elements
faults.py       error messages of the proof
proof.py        prove(schedule): every contribution arrives exactly once, or ProofError
price.py        price(schedule, alpha, beta, gamma): seconds by cause
execute.py      execute(schedule, comm, buffer): over MPI
ring_collectives.py   ring reduce-scatter and allgather of non-contiguous arrays
pipeline.py     a pipeline as streams of instructions, one a rank
pipelines.py    GPipe, 1F1B, interleaved 1F1B, ZB-H1; all pipelines by name
dualpipe.py     DualPipe: microbatches from both ends
pipeline_proof.py   their proof, timeline and bubble

A new algorithm is one function that yields rounds:

    def everyone_to_everyone(ranks, elements):
        for step in range(1, ranks):
            yield [(r, (r + step) % ranks, 0, elements, "reduce") for r in range(ranks)]

    prove(schedule(everyone_to_everyone, ranks=4, elements=100))

This one fails with the reason: ranks forward data that they received, so contributions arrive twice.
"""

from typing import TYPE_CHECKING

from lib_dlhpc.lazy import lazy_names

if TYPE_CHECKING:
    from lib_dlhpc.schedules.algorithms import ALGORITHMS, COLLECTIVES, schedule
    from lib_dlhpc.schedules.checks import ProofError, checked
    from lib_dlhpc.schedules.compose import beside, then, within
    from lib_dlhpc.schedules.execute import execute, prepared
    from lib_dlhpc.schedules.network import Cost, Network
    from lib_dlhpc.schedules.pipeline import Backward, Forward
    from lib_dlhpc.schedules.pipeline_proof import Span, prove_pipeline, timetable
    from lib_dlhpc.schedules.pipelines import PIPELINES
    from lib_dlhpc.schedules.price import price
    from lib_dlhpc.schedules.proof import Proof, prove
    from lib_dlhpc.schedules.rounds import Round, Rounds, Schedule, messages

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "PIPELINES",
    "Backward",
    "Cost",
    "Forward",
    "Network",
    "Proof",
    "ProofError",
    "Round",
    "Rounds",
    "Schedule",
    "Span",
    "beside",
    "checked",
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

lazy_names(
    __name__,
    {
        "algorithms": ["ALGORITHMS", "COLLECTIVES", "schedule"],
        "checks": ["ProofError", "checked"],
        "compose": ["beside", "then", "within"],
        "execute": ["execute", "prepared"],
        "network": ["Cost", "Network"],
        "pipeline": ["Backward", "Forward"],
        "pipeline_proof": ["Span", "prove_pipeline", "timetable"],
        "pipelines": ["PIPELINES"],
        "price": ["price"],
        "proof": ["Proof", "prove"],
        "rounds": ["Round", "Rounds", "Schedule", "messages"],
    },
)
