"""Lab 7, repair the input: a slow input script, and the loader that a learner writes in its place.

task.py          the samples, the script and its faults, the large run; a learner's formula for samples/s
loader.py        run a learner's loader on real files and count its requests
laws.py          the findings on a loader
profile.py       calls of each kind and their times on this machine
file_calls.py    counted(folder): Python's calls on the files of a folder, and requests to a packed store
"""
