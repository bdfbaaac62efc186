"""Lab 13: a learner's analysis of traces, beside the package's own.

traces.py         a learner's traces: training steps, and programs of neighbors with a late rank or a slow link
answers.py        what a learner's function returns, as numbers of a known shape
account_laws.py   computation, exposed communication and idle time of each rank
wait_laws.py      who waits for whom, and whose doing it is
path_laws.py      the critical path, piece by piece
what_if_laws.py   the run with faster ranks or links, beside a new simulation
"""
