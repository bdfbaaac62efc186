"""A simulation that feeds training in situ: both run for real, on the same ranks or on different ones.

heat.py     Heat: the heat equation on a square, its rows shared out over ranks
samples.py  fields made into samples, and where the rows of a batch go
buffer.py   batches on their way from those that simulate to those that train, so many and no more
learner.py  Learner: the trainer, a batch at a time, and how well it has learned
measure.py  what a point, a sample and a message cost here
run.py      couple(workflow, comm): all of it
worker.py   what each MPI rank executes
"""
