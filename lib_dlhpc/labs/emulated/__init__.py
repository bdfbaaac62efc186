"""Emulated ranks, and the steps of labs 1 to 5 that run on them.

ranks.py                   emulate(ranks, program): mpi4py's communicator on threads; messages.py, matcher.py
data_parallel_step.py      a learner's data-parallel step compared with one rank (labs 1 and 2)
machine.py                 that step with the times of a modeled machine; recording.py records it (lab 2)
pipeline_stage.py          the layers of one rank of a pipeline
pipeline_step.py           a learner's pipeline compared with one rank (lab 4); pipeline_machine.py: on a machine
split_convolution.py       a learner's partition of a convolution compared with one rank (lab 5)
split_output_errors.py     which mistake explains wrong outputs; split_gradient_errors.py: wrong gradients
"""
