"""Predictions beside measurements.

calibrated.py     [calibration] from a measured run, for other networks and splits
traced.py         a real job's trace beside its prediction, and the calibration that it gives
traced_report.py  the same as a table, a dictionary and TOML
bands.py          uncertainty of a prediction from the intervals of a measured machine
"""
