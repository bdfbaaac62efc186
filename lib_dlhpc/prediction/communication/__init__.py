"""Closed forms of communication.

collectives.py  every allreduce in alpha, beta and gamma
overlap.py      overlap of gradient buckets with backward
compressed.py   the exchange of compressed gradients, explained
asynchronous.py push, update and pull; the servers' limit; staleness
neighbors.py    halo exchange between neighbors: wait states
coupled.py      a simulation that feeds training: wait states, best placement
"""
