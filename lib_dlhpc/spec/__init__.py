"""Nouns: what a run is, read from and written to TOML.

experiment.py   Experiment: load, loads, dump, dumps, set
machine.py      Device, Link, StorageTier, Machine
measured.py     Measured: where a machine's numbers were measured; the user's own calibration
model.py        Layer, Model (a layer graph with exact counts)
networks/       builders of models from their layers' shapes
dataset.py      Dataset
pace.py         Pace: the measured speed of a kind of layer
strategy.py     Strategy
workflow.py     Workflow: a simulation that feeds training; Simulation, Coupling, Costs
catalog.py      finds entries in lib_dlhpc/catalog
plain.py        as_json: what is told as JSON, in SI units
schema.py       TOML tables to dataclasses and back, with errors that help
run_only.py     settings that only a real run reads, and which of them an experiment has set
units.py        "100 Gb/s" to 12.5e9 B/s and back
errors.py       SpecError
"""
