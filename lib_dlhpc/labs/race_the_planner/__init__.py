"""Lab 10: a learner's planner races on spaces of layouts with a budget of predictions, and two plans are run.

tracks.py       spaces that are small enough to predict all of their layouts
race.py         a planner on a track: predictions counted, regret; the library's and simple planners beside it
laws.py         findings on a planner
estimate_laws.py  findings on the estimate behind it: bytes and objective, in which order
real_plans.py   two layouts of a small network on MPI ranks, measured
"""
