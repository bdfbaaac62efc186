"""Closed forms of pipelines.

pipelined.py    textbook formulas, beside the longest path
bubbles.py      idle time and memory of 1F1B, ZB-H1 and DualPipe, side by side
"""
