"""Closed forms of input and of files.

io.py           reading(experiment): the rate of each input limit, the bottleneck; volumes, nodes needed
caching.py      cache hit rates when every epoch reads everything in a new random order
striping.py     a checkpoint written to striped files: one for all, one per rank, through aggregators
profile.py      the run on the FanStore project's slides: its file system load, where its hours go
"""
