"""DLIO and MLPerf Storage: the input of emulated training. Its MB are 2^20 B; mean and standard deviation over epochs.

With a high accelerator utilization the emulated computation limits, and the rate is a lower bound of what the tier has.
"""

import re

from lib_dlhpc.importing.measurements.measurement import File, Measurement, Note, rated, spread

TOOL = "DLIO"
METRIC = re.compile(r"^.*\[METRIC\] ([^:]+): (\S+)(?: \((\S+)\))?\s*$")
RATE = "Training I/O Throughput"
BUSY = "Training Accelerator Utilization"
HIGH = 90.0  # %: MLPerf Storage's limit for the utilization


def read(file: File) -> list[Measurement]:
    """Return the read bandwidth of the tier; raises SpecError that names a broken line."""
    found: list[Measurement] = []
    for line, text in file.lines:
        metric = METRIC.match(text)
        if metric is None:
            continue
        if metric[1].startswith(RATE):
            mean = file.number(metric[2], line)
            deviation = file.number((metric[3] or "0").lstrip("±"), line, zero=True)
            rates = [2.0**20 * each for each in spread(mean, deviation)]
            found.append(rated(f"{file.tier(TOOL)}.bandwidth", rates, file.source(TOOL, line)))
        elif metric[1].startswith(BUSY) and file.number(metric[2], line) >= HIGH:
            found.append(
                Note(
                    f"{file.source(TOOL, line)}: utilization {metric[2]}%: accelerators hardly waited,"
                    " so the tier may be faster than measured here."
                )
            )
    return found
