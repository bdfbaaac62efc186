"""Prices that every engine shares: what compute, a bucket, a batch of input and a link cost.

compute.py            layer times by roofline; optimiser update
paces.py              layers at a pace that was measured
buckets.py            gradient buckets, and when backward has filled them
segments.py           what recomputation makes again, and from what
work.py               one device's part of a step of data parallelism
stage.py              a part of a split network for a microbatch: arithmetic and messages
network.py            the machine as an exchange sees it, congestion included
groups.py             the network that a group of ranks sees, and its exchanges
stragglers.py         the slowest of many
length.py             how many steps a run has
reading.py            what a sample costs on its way from storage, limit by limit
input.py              storage: a batch of input; listing and copying files before the first
queueing.py           waiting for a server that others use as well: open and closed
calibration.py        compute_scale: from a measured rate
split_calibration.py  the same for a network that is split
kept.py               what layers keep for their backward pass
coupled.py            a batch of a coupled workflow, for the side that makes it and the one that takes it
state.py              bytes a parameter: weights, gradients, optimiser state
checkpoints.py        who writes how much, how long training stands still, what a restart takes
offload.py            what moves out of core, and the way it takes
"""
