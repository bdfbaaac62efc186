"""A device of torch: all that differs from kind to kind, behind the calls that worker.py makes.

ROCm builds of torch name their devices "cuda", and RCCL "nccl". Calls are asynchronous: a clock is read once the
device is idle, except for `issued`, the host's part alone, and `queued`, the device's part alone, between two events.
"""

import os
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Any

import torch
import torch.distributed as dist

from lib_dlhpc.errors import SpecError, listed

KINDS = ("cuda", "rocm", "mps", "cpu")
PRECISIONS = {
    "cuda": ("fp64", "fp32", "tf32", "fp16", "bf16"),
    "rocm": ("fp64", "fp32", "fp16", "bf16"),
    "mps": ("fp32", "fp16"),
    "cpu": ("fp64", "fp32", "bf16"),
}
TYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
NO_POWER = (RuntimeError, OSError, ImportError, AttributeError)  # no library, or no permission
Call = Callable[[], object]


def devices_here() -> dict[str, int]:
    """Return how many devices of each kind this machine has; a processor is one."""
    graphics = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = {"rocm" if torch.version.hip else "cuda": graphics}
    found["mps"] = int(torch.backends.mps.is_available())
    return {kind: many for kind, many in found.items() if many} | {"cpu": 1}


def check_device(kind: str, ranks: int) -> None:
    """Raise SpecError unless each of `ranks` has a device of this kind; ranks share the processor's cores."""
    here = devices_here()
    shown = ", ".join(f"{name} ({many})" for name, many in here.items())
    if kind not in KINDS:
        raise SpecError(listed(f"--device {kind}:", kind, KINDS))
    if kind not in here:
        raise SpecError(f"--device {kind}: torch {torch.__version__} finds none; here: {shown}.")
    if kind != "cpu" and ranks > here[kind]:
        raise SpecError(f"--ranks {ranks}: expected at most one a device; here: {shown}.")


class TorchDevice:
    """The device of one rank. ranks > 1: torchrun has started the process."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rank, self.ranks = (
            int(os.environ.get(name, other)) for name, other in (("RANK", 0), ("WORLD_SIZE", 1))
        )
        self.accelerated = kind in ("cuda", "rocm")
        self.where = torch.device("cuda", self.rank) if self.accelerated else torch.device(kind)
        if self.accelerated:
            torch.cuda.set_device(self.where)
        self.backend = "nccl" if self.accelerated else "gloo"
        if self.ranks > 1:
            dist.init_process_group(self.backend)
        self.precisions = PRECISIONS[kind]

    def facts(self) -> dict[str, Any]:
        """Return the name, the memory in B (None if torch does not know it), and the versions."""
        versions = {"torch": torch.__version__}
        if not self.accelerated:
            return {"title": self.kind, "memory": None, "versions": versions}
        about = torch.cuda.get_device_properties(self.where)
        versions["cuda" if self.kind == "cuda" else "hip"] = torch.version.hip or torch.version.cuda
        if dist.is_nccl_available():
            versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        return {"title": about.name, "memory": about.total_memory, "versions": versions}

    def product(self, precision: str, edge: int) -> Call:
        """Return the product of two square matrices."""
        a, b = (torch.randn(edge, edge, device=self.where).to(TYPES[precision]) for _ in "ab")
        c, flags = torch.empty_like(a), torch.backends.cuda.matmul

        def call() -> None:
            if self.kind == "cuda":
                flags.allow_tf32 = precision == "tf32"
            torch.mm(a, b, out=c)

        return call

    def sum(self, size: int) -> Call:
        """Return the sum of two fp32 arrays of `size` B, into the first."""
        a, b = self._array(size), self._array(size)
        return lambda: torch.add(a, b, out=a)

    def message(self, size: int) -> Call:
        """Return a ping-pong between the first two ranks; the others do nothing."""
        array, there, back = self._array(size), (dist.send, dist.recv), (dist.recv, dist.send)

        def call() -> None:
            if self.rank < 2:
                for operation in there if self.rank == 0 else back:
                    operation(array, 1 - self.rank)

        return call

    def collective(self, name: str, size: int) -> Call:
        """Return an "allreduce", "all_gather" or "reduce_scatter"; size: B of the whole array."""
        whole, part = self._array(size), self._array(size // self.ranks)
        return {
            "allreduce": lambda: dist.all_reduce(whole),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        }[name]

    def _array(self, size: int) -> Any:
        return torch.zeros(max(1, size // 4), device=self.where)

    def wait(self) -> None:
        """Return once the device is idle."""
        if self.kind != "cpu":
            (torch.cuda if self.accelerated else torch.mps).synchronize()

    def seconds(self, call: Call, times: int) -> float:
        """Return the s of some calls, until the device is idle."""
        self.wait()
        begin = perf_counter()
        for _ in range(times):
            call()
        self.wait()
        return perf_counter() - begin

    def issued(self, call: Call, times: int) -> float:
        """Return the s that the host needs to issue some calls to an idle device."""
        self.wait()
        begin = perf_counter()
        for _ in range(times):
            call()
        return perf_counter() - begin

    def queued(self, call: Call, times: int, before: Call) -> float | None:
        """Return the device's s of some calls that wait behind `before`; None without events of a device."""
        if not self.accelerated:
            return None
        first, last = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        self.wait()
        before()
        first.record()
        for _ in range(times):
            call()
        last.record()
        self.wait()
        return float(first.elapsed_time(last)) / 1e3

    def watts(self) -> float | None:
        """Return the power that NVML reports now; None if it cannot be read. Of ROCm torch gives no sure unit."""
        try:
            return torch.cuda.power_draw(self.where) / 1e3 if self.kind == "cuda" else None
        except NO_POWER:
            return None

    def rest(self, seconds: float) -> None:
        """Leave the device idle."""
        self.wait()
        sleep(seconds)

    def everyone(self, value: Any) -> list[Any]:
        """Return the values of all ranks, on all ranks."""
        found = [value] * self.ranks
        if self.ranks > 1:
            dist.all_gather_object(found, value)
        return found

    def close(self) -> None:
        """Leave the group of ranks."""
        if self.ranks > 1:
            dist.destroy_process_group()
