"""From an experiment to the program of its step: one pass after another, each for one kind of parallelism.

step.py              program(experiment, scale): all passes in order; steps: of several steps in turn
passes.py            the passes of a part under construction
groups.py            which ranks exchange, and their networks
ramps.py             how often exchanges of stages that share a node meet (ZeRO 2, 3)
layers.py            layer after layer, with the communication layers of `layout`: tensor, spatial, experts
context.py           what ranks that divide a sequence exchange around attention
overlapped_passes.py exchanges of experts behind what a pass of the other direction computes (DualPipe)
recomputation.py     forward passes repeated in backward
zero.py              weights gathered ahead of their layers (ZeRO 3); weights gathered after the update (ZeRO 1, 2)
data_parallel.py     gradient buckets, exchanged as backward fills them
compression.py       the largest gradients selected, gathered and added, in place of buckets
low_rank.py          factors of gradients, in place of buckets
casts.py             casts of gradients into the format of the exchange, and back
muon.py              momentum of whole matrices gathered for Muon
offload.py           what moves to the host and back
local_updates.py     weights averaged every few steps, in place of gradients, with an outer optimizer or without
pipeline.py          messages between stages; tables that two stages share
"""

from lib_dlhpc.parallel.step import KINDS, program, steps, update_time

__all__ = ["KINDS", "program", "steps", "update_time"]
