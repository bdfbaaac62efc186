"""Limits of a machine, and what a run needs to stay within them.

exceeded_limits.py broken limits, and by how much
fit.py             configurations that fit in memory, and their cost
rank_limits.py     what the ranks of a real run hold, and what would fit
implausible.py     rates, sizes and latencies that no machine has
"""
