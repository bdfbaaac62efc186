"""Discrete-event simulation of training: every rank, with jitter and contention, on one Timeline.

step.py           simulate(experiment): its program under its conditions, at a fidelity
conditions.py     what differs from step to step and from rank to rank
rounds.py         a schedule in rounds: all ranks at once, no contention beyond the NICs
events.py         a schedule simulated message by message
uncontended.py    the same where messages never share a link: all of a round at once
simulation.py     ranks, messages and background traffic as processes on a platform
flows.py          messages in flight as fluid flows, whose rates change as others start and end
fairness.py       max-min fair rates
watchdog.py       deadlock reports and cancellation
pipeline.py       a pipeline of microbatches: its instruction streams simulated on a machine
program_rounds.py a program (lib_dlhpc/program/) in rounds: all ranks of a stage at once
program_terms.py  where the time of steps in rounds goes, without rows
program_events.py the same with every rank a process
program_rows.py   what the ranks of a stage do as rows of the Timeline
ranked.py         collectives that ranks leave one by one
asynchronous.py   parameter servers, for which no rank waits for another
staleness.py      asynchronous steps as rows of the Timeline; how stale gradients get
input.py          readers and prefetching: when the next batch of each rank is ready
storage.py        metadata servers and data servers as queues; readers that share them
size.py           limits on the size of a simulation
step_terms.py     where the time of simulated steps goes, for each way to update
caching.py        caches: hits of an epoch by eviction policy
neighbors.py      a program whose ranks exchange messages with two neighbors, its calls as they are recorded
coupled.py        a simulation that feeds training, with a buffer between them
failures.py       a run with checkpoints and failures, many runs at once
spares.py         a machine whose nodes fail and are repaired
merging.py        messages that switches add or copy
messages.py       messages as rows of the Timeline
chakra/           execution traces of MLCommons Chakra: a program exported, any trace simulated
energy.py         joules of simulated steps by cause, and power over time
terminal.py       a simulation in a terminal: progress, Ctrl-C, the trace
compare.py        a simulated step beside the predicted one, and why they differ
"""

from lib_dlhpc.simulation.asynchronous import AsynchronousRun, asynchronous_sgd
from lib_dlhpc.simulation.caching import hit_rates, orders
from lib_dlhpc.simulation.compare import why
from lib_dlhpc.simulation.conditions import StepProgress
from lib_dlhpc.simulation.coupled import simulate_coupled
from lib_dlhpc.simulation.energy import energy_of, power_over_time
from lib_dlhpc.simulation.failures import FailureRuns, Phase, simulate_runs
from lib_dlhpc.simulation.neighbors import program, ring, simulate_neighbors
from lib_dlhpc.simulation.pipeline import simulate_pipeline
from lib_dlhpc.simulation.size import MOST_MESSAGES
from lib_dlhpc.simulation.step import simulate, simulate_terms
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.simulation.storage import clients
from lib_dlhpc.simulation.watchdog import Cancelled, DeadlockError

__all__ = [
    "MOST_MESSAGES",
    "AsynchronousRun",
    "Cancelled",
    "DeadlockError",
    "FailureRuns",
    "Phase",
    "StepProgress",
    "asynchronous_sgd",
    "clients",
    "energy_of",
    "hit_rates",
    "measure",
    "orders",
    "power_over_time",
    "program",
    "ring",
    "simulate",
    "simulate_coupled",
    "simulate_neighbors",
    "simulate_pipeline",
    "simulate_runs",
    "simulate_terms",
    "why",
]
