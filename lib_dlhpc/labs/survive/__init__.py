"""Lab 8, survive: how often to checkpoint, and a save and resume that survive kill -9.

checkpoint_interval.py    a learner's expected time, interval and choice compared with the library's
save_and_resume.py        the findings on a learner's save and resume
killed_runs.py            a small run that is killed at chosen points and restarted
"""
