"""A sample on its way from storage to a device: how long it occupies each server, and holds its reader.

The simulator queues samples by these numbers (lib_dlhpc/simulation/storage.py), and a run throttles its readers by them
(lib_dlhpc/training/input/throttle.py). What they allow together, in closed form: storage_reads.py.
"""

from dataclasses import dataclass

import numpy as np

from lib_dlhpc.costs import storage_reads
from lib_dlhpc.spec.experiment import Experiment


@dataclass(frozen=True)
class SamplePath:
    """Seconds of an uncached sample. `lookup`, `read`, `network`: (of the server, of the reader)."""

    lookup: tuple[float, float]
    read: tuple[float, float]
    # Of the NICs of the reading node, and of the reader if the sample is remote.
    network: tuple[float, float]
    decode: float  # CPU time of the reader, also of a cached sample
    shared: bool  # one tier for all nodes, behind the NICs
    apart: bool  # metadata and data have separate servers


def sample_path(experiment: Experiment) -> SamplePath:
    """Return the way of a sample of an experiment with a storage tier. Raises SpecError for an unknown tier."""
    tier, link = storage_reads.read_tier(experiment), experiment.machine.inter_node
    size, rate = float(storage_reads.stored_bytes(experiment)), link.bandwidth * link.efficiency
    asked, calls = (
        float(storage_reads.operations(experiment)),
        float(storage_reads.reads(experiment)),
    )
    crowd = float(np.max(storage_reads.congestion(experiment)))
    reader_seconds = storage_reads.reader_time(experiment)
    return SamplePath(
        lookup=(asked / tier.metadata_rate, asked * tier.operation_latency),
        read=(
            calls / tier.read_rate + size / tier.bandwidth,
            calls * tier.read_latency + size / tier.reader_bandwidth,
        ),
        network=(size * crowd / (experiment.machine.nics * rate), 2 * link.latency + size / rate),
        decode=float(reader_seconds["decompression"] + reader_seconds["decoding"]),
        shared=tier.scope == "shared",
        apart=tier.servers == "apart",
    )
