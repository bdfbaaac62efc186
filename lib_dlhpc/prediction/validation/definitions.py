"""Published figures that follow from a definition: arithmetic, without a machine model."""

from collections.abc import Callable
from typing import Any

from lib_dlhpc.costs.checkpoints import CheckpointCost
from lib_dlhpc.costs.model_state import model_state_bytes
from lib_dlhpc.costs.nccl import allreduce_time
from lib_dlhpc.costs.stored_activations import stored_bytes
from lib_dlhpc.layout import parts
from lib_dlhpc.prediction.communication.collectives import bus_bandwidth
from lib_dlhpc.prediction.energy.energy import facility_energy
from lib_dlhpc.prediction.failures.intervals import best_interval, daly, goodput, young
from lib_dlhpc.prediction.memory.device_ledger import attention_activation_saved
from lib_dlhpc.prediction.storage.io import reading
from lib_dlhpc.prediction.storage.profile import holders
from lib_dlhpc.spec.experiment import Experiment


def checkpoint_size(parameters: float, bytes_each: float) -> float:
    """Return the bytes of a checkpoint that holds `bytes_each` for each parameter."""
    return parameters * bytes_each


def checkpoint_overhead(duration: float, interval: float, seconds_each: float) -> float:
    """Return the seconds spent on checkpoints of `seconds_each` every `interval` over `duration` s."""
    return duration / interval * seconds_each


def checkpoint_interval(cost: float, mtbf: float, order: str = "higher") -> Any:
    """Return the s between checkpoints: Young 1974 to "first" order, Daly 2006 to a "higher" one."""
    return {"first": young, "higher": daly}[order](cost, mtbf)


def training_share(cost: float, mtbf: float, restart: float) -> Any:
    """Return the goodput at the best checkpoint interval (Daly 2006, complete model)."""
    price = CheckpointCost(size=0.0, written=0.0, blocked=cost, restart=restart)
    return goodput(best_interval(price, mtbf), price, mtbf)


def file_operations(files: float, epochs: float) -> float:
    """Return how often files are opened when each is read once per epoch."""
    return files * epochs


def listing_operations(directories: float, ranks: float) -> float:
    """Return the number of directory listings when every rank lists every directory."""
    return directories * ranks


def file_size(size: float, files: float) -> float:
    """Return the mean bytes of a file."""
    return size / files


def fed_step(records: int, record: float, files: int, batch: int, bandwidth: float) -> float:
    """Return the seconds of the shortest step that storage of `bandwidth` B/s can feed without a stall.

    files of `records` records of `record` bytes each, `batch` of them a step (MLPerf Storage's workloads).
    """
    run = Experiment(
        model="resnet50",
        dataset={"samples": files * records, "files": files, "bytes": files * records * record},
        machine={"name": "h100-pod", "storage": {"under-test": {"bandwidth": bandwidth}}},
        strategy={"devices_per_node": 1, "batch": batch},
        storage={"tier": "under-test"},
    )
    return float(reading(run).fetch)


def gradient_bandwidth(bytes_moved: float, seconds: float) -> float:
    """Return the B/s needed to transfer `bytes_moved` in `seconds` (Goyal et al. 2017, section 4)."""
    return bytes_moved / seconds


def protocol_bus_bandwidth(
    n: float, ranks: int, nodes: int, small: list[float], large: list[float]
) -> float:
    """Return the bus bandwidth in B/s of an allreduce with the fastest of NCCL's protocols (costs/nccl.py).

    small, large: [bytes, bus bandwidth in B/s] of a short message, which gives what a call takes in addition, and of a
    long one, which gives the bandwidth.
    """
    (n0, bus0), (_, bandwidth) = small, large
    taken = n0 / bus0 * 2 * (ranks - 1) / ranks
    call = taken - allreduce_time(n0, ranks, nodes, bandwidth)
    time = call + allreduce_time(n, ranks, nodes, bandwidth)
    return float(bus_bandwidth(n, time, ranks))


def training_time(tokens: float, parameters: float, devices: float, rate: float) -> float:
    """Return the seconds of a run at `rate` FLOP/s per device, with recomputation (Narayanan et al. 2021, eq. 4)."""
    return 8 * tokens * parameters / (devices * rate)


def activation_fraction(model: str, tensor: int) -> float:
    """Return the activations of a layer with sequence parallelism and selective recomputation over those without both.

    Computed from the layers of a rank (Korthikanti et al. 2022, section 4.4 and 5).
    """
    plain = _activation_bytes(model, {"tensor": tensor})
    both = {"tensor": tensor, "sequence_parallel": True, "recompute": "selective"}
    return _activation_bytes(model, both) / plain


def _activation_bytes(model: str, strategy: dict[str, Any]) -> float:
    """Return the activation bytes per sample of one transformer block on a rank, in fp16."""
    run = Experiment(
        model={"name": model, "layers": 2},
        dataset="webtext",
        machine={"name": "selene", "devices_per_node": strategy["tensor"]},
        strategy={"precision": "fp16", "fused_attention": "off", **strategy},
    )
    two, three = (
        stored_bytes(
            parts(run.set({"model.layers": layers}), 0)[0], 2, run.strategy.recompute, False
        )
        for layers in (2, 3)
    )
    return three - two


DEFINITIONS: dict[str, Callable[..., Any]] = {
    "model_state_bytes": model_state_bytes,
    "attention_activation_saved": attention_activation_saved,
    "checkpoint_size": checkpoint_size,
    "checkpoint_overhead": checkpoint_overhead,
    "checkpoint_interval": checkpoint_interval,
    "training_share": training_share,
    "facility_energy": facility_energy,
    "fed_step": fed_step,
    "file_operations": file_operations,
    "file_size": file_size,
    "gradient_bandwidth": gradient_bandwidth,
    "holders": holders,
    "listing_operations": listing_operations,
    "protocol_bus_bandwidth": protocol_bus_bandwidth,
    "training_time": training_time,
    "activation_fraction": activation_fraction,
}
