"""A step as execution traces of MLCommons Chakra, and traces of any origin simulated on a machine.

export.py   export: the program of an experiment, a file for each rank
joined.py   the graph of all ranks: messages and collectives matched, errors found
prices.py   what its nodes cost on a machine
walk.py     simulate_trace: when each node happens, as a Timeline
"""

from lib_dlhpc.simulation.chakra.export import export
from lib_dlhpc.simulation.chakra.walk import simulate_trace

__all__ = ["export", "simulate_trace"]
