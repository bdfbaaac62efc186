"""What runs on one rank of PyTorch: it needs Python, numpy and torch, and nothing of the library.

networks.py   our weights in torch
passes.py     the passes of a stage, recorded by hooks
meter.py      the bytes that a rank holds
steps.py      a learner's functions in a lab, step by step, on plain numbers
group.py      a process group whose calls another process carries out
graded.py     steps that such a process asks for

Imports are relative: processes of the grader know this folder as `rank`, without the library around it.
"""

MOMENTUM = 0.9  # of lab 6
