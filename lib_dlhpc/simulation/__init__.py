"""Training played out: every rank for itself, with jitter and contention, on one Timeline.

step.py          simulate(experiment): what there is to play, and by which fidelity
clock.py         when everything happens in a step; step after step in rounds
rounds.py        rounds: the exchange for all ranks at once, no contention beyond the NICs
processes.py     events: the same steps with every rank a process
events.py        a schedule played message by message
simulation.py    ranks, messages and background traffic as processes on a platform
platform.py      the links of a machine and the routes between ranks
flows.py         messages under way as fluid, whose rates change as others come and go
fairness.py      max-min fair rates
watchdog.py      who waits for whom when nothing can move; how to cancel
pipeline.py      a pipeline of microbatches, its instructions played on a machine
hybrid.py        networks that are split over ranks: steps in rounds
hybrid_events.py the same with every rank a process
program.py       what a rank of a split network does for one microbatch
split.py         a stage's programs, ready to be played in rounds
split_rows.py    steps in rounds as rows of the Timeline
local.py         steps that every rank takes by itself between two averages of the weights
asynchronous.py  parameter servers, for which no rank waits for another
staleness.py     asynchronous steps as rows of the Timeline; how stale gradients get
input.py         readers and batches fetched ahead: when each rank's next batch is there
storage.py       metadata servers and data servers as queues; readers that share them
size.py          how much is played at most
measure.py       where the time of simulated steps goes, for each way to update
caching.py       caches played: which samples of an epoch are found, by what is dropped
neighbors.py    a program whose ranks exchange messages with two neighbors, its calls as they are recorded
coupled.py       a simulation that feeds training, with a buffer between them
failures.py      a run with checkpoints and failures, many times at once
rows.py          a step as rows of the Timeline
messages.py      messages as rows of the Timeline
terminal.py      a simulation in a terminal: progress, Ctrl-C, the trace
compare.py       a simulated step beside the predicted one, and why they differ
"""

from lib_dlhpc.simulation.step import simulate

__all__ = ["simulate"]
