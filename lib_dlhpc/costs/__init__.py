"""Prices that every engine shares: what compute, a bucket, a batch of input and a link cost.

compute.py      layer times by roofline; optimiser update
buckets.py      gradient buckets, and when backward has filled them
segments.py     what recomputation makes again, and from what
work.py         both together: one device's part of a step
netsegments.py     what recomputation makes again, and from what
work.py      the machine as an exchange sees it, congestion included
stragglers.py   the slowest of many
input.py        storage: input and the first listing of files
calibration.py  compute_scale: from a measured rate
"""
