"""Grades of a class that hold: learners' code runs in processes that have neither the answers nor the checks.

grade.py      a mark for each learner, whatever happens
labs.py       what each lab hands in, and what it may import
hand_in.py    a file is read; every rank of every run is a fresh process
remote.py     a call into such a process, whose own calls come back and are carried out here: this end is the network
files.py      file calls of such a process, and of the storage library, carried out here
torch_world.py  hand-ins in PyTorch: this end is the network there, too
restarts.py   lab 8's run, killed and restarted, with training here
offered.py    what of a communicator, a network or a stage a learner may read and call
workers.py    starts the processes
inside/       what runs in them
table.py      marks as CSV
similar.py    which hand-ins look alike
rubric.py     a page for the human part of a mark
"""
