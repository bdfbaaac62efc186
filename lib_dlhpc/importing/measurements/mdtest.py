"""mdtest: operations on files a second of all tasks. A stat is one operation on metadata, a read is open and close."""

import re

from lib_dlhpc.importing.measurements.measurement import File, Measurement, rated

TOOL = "mdtest"
ROW = re.compile(r"^\s*File (stat|read)\s*:?\s+(.*)$")
NODES = re.compile(r"^\s*mdtest-\S+ was launched with \d+ total task\(s\) on (\d+) node")
OPERATIONS = {"stat": 1.0, "read": 2.0}


def read(file: File) -> list[Measurement]:
    """Return the rates of stat and read, with largest, least and mean as repeats; tests that did not run have 0."""
    found: list[Measurement] = []
    nodes, of_rates = 1, True
    for line, text in file.lines:
        if launched := NODES.match(text):
            nodes = int(launched[1])
        elif "SUMMARY" in text:
            of_rates = "SUMMARY rate" in text  # with -v there is a summary of times as well
        elif of_rates and (row := ROW.match(text)):
            words = row[2].split()
            if len(words) < 3:
                raise file.broken(line, "a row of results is incomplete")
            if all(word.strip("0") == "." for word in words[:3]):
                continue
            rates = [file.number(word, line) for word in words[:3]]
            source = file.source(f"{TOOL} File {row[1]}", line)
            key = f"{file.tier(TOOL)}.metadata_rate"
            found.append(rated(key, rates, source, nodes, OPERATIONS[row[1]]))
    return found
