"""STREAM: Triad, whose rate is in MB/s of 1e6 B; least, mean and largest time are the repeats."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.measurements.measurement import File, Measurement, Timed

TOOL = "STREAM Triad"


def read(file: File) -> list[Measurement]:
    """Return the memory bandwidth; raises SpecError at a broken line, and if no device is stated."""
    if file.part != "device":
        raise SpecError(
            f"{file.name}: STREAM does not say which device's memory it measured; if it ran on all cores of one device"
            f" of the machine, such as a socket, write device={file.name}."
        )
    found: list[Measurement] = []
    for line, text in file.lines:
        words = text.split()
        if words[:1] != ["Triad:"]:
            continue
        if len(words) < 5:
            raise file.broken(line, "a row of results is incomplete")
        best, mean, least, most = (file.number(word, line) for word in words[1:5])
        terms = {"device.memory_bandwidth": 1e6 * best * least}
        found.append(Timed(terms, (least, mean, most), file.source(TOOL, line)))
    return found
