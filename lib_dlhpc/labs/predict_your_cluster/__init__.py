"""Lab 9, predict your cluster: calibrate on two ranks, predict more, explain the error.

hidden_cluster.py    a learner's hidden machine: its calibration points, its runs
laws.py              the findings on fits, prediction, bands, cause and repair
step_slips.py        what may have been forgotten in the terms of a step
tables.py            measured and predicted terms as lines of text
real_cluster.py      the same on a real machine: two ranks measure, a batch job runs
"""
