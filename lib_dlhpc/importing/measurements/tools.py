"""Which tool wrote a text: each has its own first lines."""

import re
from collections.abc import Callable
from typing import NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.measurements import (
    darshan,
    dlio,
    fio,
    hwloc,
    imb,
    ior,
    mdtest,
    nccl_tests,
    nvidia_smi,
    osu,
    simgrid,
    stream,
)
from lib_dlhpc.importing.measurements.measurement import SHOWN, File, Measurement


class Tool(NamedTuple):
    """A tool: its name, a pattern that only its outputs contain, and what reads them."""

    name: str
    mark: str
    read: Callable[[File], list[Measurement]]


TOOLS = (
    Tool(
        "nccl-tests", r"nThread \d+ nGpus \d+ minBytes|^# Collective test starting", nccl_tests.read
    ),
    Tool("OSU Micro-Benchmarks", r"^\s*# OSU MPI", osu.read),
    Tool("Intel MPI Benchmarks", r"^#\s+Intel ?\(R\) MPI Benchmark", imb.read),
    Tool("IOR", r"MPI Coordinated Test of Parallel I/O", ior.read),
    Tool("mdtest", r"^\s*mdtest-\S+ was launched with", mdtest.read),
    Tool("fio", r"^fio-\d|\"fio version\"", fio.read),
    Tool("DLIO", r"\[METRIC\]", dlio.read),
    Tool("darshan-parser", r"^# darshan log version: ", darshan.read),
    Tool("STREAM", r"^STREAM version", stream.read),
    Tool("nvidia-smi -q", r"=+NVSMI LOG=+", nvidia_smi.read),
    Tool("hwloc XML (lstopo --of xml)", r"<topology\b", hwloc.read),
    Tool("SimGrid platform XML", r"<platform\b", simgrid.read),
)


def measurements_of(file: File) -> list[Measurement]:
    """Return what a file says about a machine; raises SpecError for an unknown text, and for a broken line."""
    tool = next((each for each in TOOLS if re.search(each.mark, file.text, re.MULTILINE)), None)
    if tool is None:
        first = next((line.strip() for line in file.text.splitlines() if line.strip()), "")
        seen = f"it begins with {first[:SHOWN]!r}" if first else "it is empty"
        raise SpecError(
            f"{file.name}: no output of a known tool; {seen}. Known: {', '.join(each.name for each in TOOLS)}."
        )
    found = tool.read(file)
    if not found:
        raise SpecError(f"{file.name}: an output of {tool.name} without a result.")
    return found
