"""Predictions in words, tables and formulas.

report.py        a prediction as plain data and as a table for a terminal
summary.py       predictions, sweeps and validations in words and as columns, for notebooks
explain.py       every number explained: formula, inputs, source, range of validity. Each is in the file of its
                 formula; those of costs/ are here and in explain_split.py
explain_split.py messages of a split network explained
"""
