"""Cost models shared by all engines: compute, gradient buckets, input and links.

roofline.py           layer times by roofline; optimizer update
gemm_tiles.py         matrix products (GEMM) in tiles: how much of a device works on one
layer_rates.py        layer times by measured rates
operators.py          a step by class of operator, and what fused kernels remove
host.py               a host that issues kernels one by one, and waits for token counts
buckets.py            gradient buckets, and when backward has filled them
fsdp_units.py         what ZeRO 3 gathers at a time: a block, as FSDP
wire_format.py        gradients in the format of their exchange: bytes, casts
compression.py        deep gradient compression: elements sent, selection
low_rank.py           low-rank compression: elements sent, products
muon.py               Muon: matrices, orthogonalization
outer_optimizer.py    the outer optimizer of local updates
segments.py           segments of activation recomputation
power_limit.py        what a power limit does to power and time
energy.py             joules of a step by cause; emissions
device_work.py        one device's compute in a data-parallel step
exchanges.py          what the layers of a part exchange
instruction_prices.py what the instructions of a program cost
network.py            the network model of a machine, congestion included
switch_contention.py  how far messages between nodes share links of the topology
platform.py           the links of a machine and the routes between ranks
groups.py             the network of a process group, and its collectives
group_placement.py    which groups of one kind lie alike on nodes and switches
uneven_groups.py      groups that cross the edge of a node, on the links that they use
nccl.py               an allreduce by NCCL's protocols
stragglers.py         the slowest of p ranks
step_count.py         number of steps of a run
storage_reads.py      read time of a sample from storage, by limit
sample_path.py        a sample's turn at each server, which simulation and runs queue by
input.py              input time of a batch; listing and staging before the first step
calibration.py        compute_scale: from a measured rate
split_calibration.py  the same for a partitioned network
stored_activations.py activations stored for the backward pass
coupled.py            a batch of a coupled workflow: producer and consumer
model_state.py        bytes a parameter: weights, gradients, optimizer state
checkpoints.py        bytes written, stall of training, and restart time
spares.py             nodes of a run, spares and replicas: who trains when some are in repair
offload.py            offloaded bytes, and the link they use
"""

from typing import TYPE_CHECKING

from lib_dlhpc.lazy import lazy_names

if TYPE_CHECKING:
    from lib_dlhpc.costs.buckets import buckets
    from lib_dlhpc.costs.checkpoints import CheckpointCost, Checks
    from lib_dlhpc.costs.groups import wire
    from lib_dlhpc.costs.network import Level, Network, flat, network_of
    from lib_dlhpc.costs.operators import Operators, by_operator
    from lib_dlhpc.costs.power_limit import clock
    from lib_dlhpc.costs.roofline import (
        BYTES,
        LayerTimes,
        layer_times,
        peak_rate,
        traffic,
        update_time,
    )
    from lib_dlhpc.costs.segments import segments
    from lib_dlhpc.costs.spares import NodePool
    from lib_dlhpc.costs.split_calibration import scale_of
    from lib_dlhpc.costs.stragglers import slowest

__all__ = [
    "BYTES",
    "CheckpointCost",
    "Checks",
    "LayerTimes",
    "Level",
    "Network",
    "NodePool",
    "Operators",
    "buckets",
    "by_operator",
    "clock",
    "flat",
    "layer_times",
    "network_of",
    "peak_rate",
    "scale_of",
    "segments",
    "slowest",
    "traffic",
    "update_time",
    "wire",
]

lazy_names(
    __name__,
    {
        "buckets": ["buckets"],
        "checkpoints": ["Checks", "CheckpointCost"],
        "roofline": ["BYTES", "LayerTimes", "layer_times", "peak_rate", "traffic", "update_time"],
        "groups": ["wire"],
        "network": ["Level", "Network", "flat", "network_of"],
        "operators": ["Operators", "by_operator"],
        "power_limit": ["clock"],
        "segments": ["segments"],
        "spares": ["NodePool"],
        "split_calibration": ["scale_of"],
        "stragglers": ["slowest"],
    },
)
