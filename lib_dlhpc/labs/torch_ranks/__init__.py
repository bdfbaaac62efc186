"""Labs 1, 2, 4 and 6 in PyTorch: a learner's file on processes of torch.distributed, under the laws of the labs.

world.py          World: the processes, started from here without importing torch; what hangs is explained
worker.py         one process
recorder.py       what it exchanges, seen by a dispatch mode
programs.py       what a process runs of a lab
held.py           what a rank of ZeRO held and updated
rank/             steps of labs on one rank, without the library: also for processes of the grader
runs.py           a lab's run on a World, in the form of its emulated ranks: the checks are the same
"""
