"""Labs 1, 2, 4 and 6 in PyTorch: a learner's file on processes of torch.distributed, under the laws of the labs.

world.py          World: the processes, started from here without importing torch; what hangs is explained
worker.py         one process
recorder.py       what it exchanges, seen by a dispatch mode
networks.py       our weights in torch
programs.py       what a process runs of labs 1, 2 and 4; passes.py: the passes of a pipeline
sharding.py       what it runs of lab 6, and the bytes that a rank holds (held.py)
runs.py           a lab's run on a World, in the form of its emulated ranks: the checks are the same
"""
