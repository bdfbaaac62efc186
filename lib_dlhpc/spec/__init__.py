"""Nouns: the parts of an experiment, read from and written to TOML.

experiment.py   Experiment: load, loads, dump, dumps, set
machine.py      Device, Link, StorageTier, Machine
measured.py     Measured: provenance of a calibrated machine
measured_machine.py
                a calibrated machine in a file; the user's own
host.py         this machine: class, cores, versions
model.py        Layer, Model (a layer graph with exact counts)
networks/       builders of models from layer shapes
dataset.py      Dataset
layer_rate.py   LayerRate: measured launch time, FLOP/s and B/s of a kind of layer
strategy.py     Strategy
storage.py      Storage: where samples come from
run.py          Run: epochs, seed, checkpoints
consistency.py  fields that contradict each other
workflow.py     Workflow: a simulation that feeds training; Simulation, Coupling, Costs
catalog.py      finds entries in lib_dlhpc/catalog
plain.py        as_json: values as JSON, in SI units
schema.py       TOML tables to dataclasses and back, validated
run_only.py     settings that only a real run reads
units.py        "100 Gb/s" to 12.5e9 B/s and back
"""
