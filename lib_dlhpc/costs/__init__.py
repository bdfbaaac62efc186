"""Prices that every engine shares: what compute, a bucket, a batch of input and a link cost.

compute.py      layer times by roofline; optimiser update
buckets.py      gradient buckets, and when backward has filled them
work.py         both together: one device's part of a step
network.py      the machine as an exchange sees it, congestion included
stragglers.py   the slowest of many
input.py        storage: input and the first listing of files
calibration.py  compute_scale: from a measured rate
"""
