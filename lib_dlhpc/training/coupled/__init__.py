"""In-situ coupling: a simulation that feeds training, both real, on the same ranks or on different ones.

heat.py     Heat: the heat equation on a square, its rows partitioned over ranks
samples.py  fields turned into samples, and how the rows of a batch are distributed
buffer.py   bounded buffer of batches in flight from simulating to training ranks
learner.py  Learner: the trainer, one batch at a time, and its test error
measure.py  what a point, a sample and a message cost here
run.py      couple(workflow, comm): the whole workflow
worker.py   what each MPI rank executes
"""
