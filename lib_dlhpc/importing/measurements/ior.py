"""IOR: bandwidth in MiB/s (2^20 B) of each iteration; one task measures a single reader.

The iterations are the repeats; the largest, which IOR prints as "Max", is not used. The rate is what these nodes got:
for a shared tier a lower bound of the whole system's.
"""

import re

from lib_dlhpc.importing.measurements.measurement import File, Measurement, Note, Source, rated

TOOL = "IOR"
UNITS = {"MiB": 2.0**20, "MB": 1e6}
OPTION = re.compile(r"^(nodes|tasks)\s*:\s*(\d+)\s*$")
HEAD = re.compile(r"^access\s+bw\((MiB|MB)/s\)")


def read(file: File) -> list[Measurement]:
    """Return the bandwidths of reads and writes; raises SpecError that names a broken line."""
    rates: dict[str, list[float]] = {}
    lines: dict[str, list[int]] = {}
    options, unit = {"nodes": 1, "tasks": 0}, 0.0
    for line, text in file.lines:
        words = text.split()
        if option := OPTION.match(text):
            options[option[1]] = int(option[2])
        elif head := HEAD.match(text):
            unit = UNITS[head[1]]
        elif text.startswith(("Max ", "Summary")):
            unit = 0.0
        elif unit and words and words[0] in ("read", "write"):
            if len(words) < 2:
                raise file.broken(line, "a row of results is incomplete")
            rates.setdefault(words[0], []).append(unit * file.number(words[1], line))
            lines.setdefault(words[0], []).append(line)
    tier, found = file.tier(TOOL), list[Measurement]()
    for what, values in rates.items():
        source = Source(file.name, f"{TOOL} {what}", lines[what][0], lines[what][-1])
        alone = "reader_bandwidth" if options["tasks"] == 1 else "bandwidth"
        key = f"{tier}.{alone if what == 'read' else 'write_bandwidth'}"
        found.append(rated(key, values, source, options["nodes"]))
    if found and options["nodes"] > 1:
        found.append(
            Note(
                f"{file.name}: IOR on {options['nodes']} nodes, a lower bound of a shared tier's rate."
            )
        )
    return found
