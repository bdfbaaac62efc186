"""Measure a device of torch: the numbers that predictions need, with intervals, and where each is from.

torch_device.py    all that knows torch: devices that exist, arrays, calls, clocks, collectives, power
worker.py          one rank: products, sums, calls, messages, collectives, steps, power; the same for every device
measure.py         measure_device(kind, ranks, seconds): start the ranks, raw results back
machine.py         device_machine(raw): a machine, fitted as `dlhpc calibrate` fits this one
report.py          the machine as commented TOML, and its curves

Import submodules directly: `from lib_dlhpc.calibration.device.measure import measure_device`.
"""
