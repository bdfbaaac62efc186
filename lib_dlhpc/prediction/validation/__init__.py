"""Predictions beside publications.

validate.py       the error of every published row
published.py      published results, and how each is used
allowed_errors.py by how much a row may be off, fixed before it is predicted
definitions.py    published figures that follow from a definition
replays.py        historical runs as experiments
trust.py          how far predictions of runs like one were off
"""
