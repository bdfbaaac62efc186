"""Many predictions in one call.

sweep.py millions of what-ifs, vectorized over several axes
grid.py  a grid of any size, piece by piece
"""
