"""Steps that a grader's process asks for: a learner's functions are in a table by name, and calls go to the grader."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from .group import join
from .steps import DataParallel, Fsdp, Overlap, Sharded, Staged

KINDS: dict[str, Any] = {
    "data_parallel": DataParallel,
    "overlap": Overlap,
    "pipeline": Staged,
    "sharded": Sharded,
    "fsdp": Fsdp,
}
Names = Mapping[str, Any]


def programs() -> dict[str, Callable[..., Any]]:
    """Return what may be called by name, each with the table of a learner's functions first."""
    running: list[Any] = []

    def start(names: Names, kind: str, comm: Any, functions: list[str], *given: Any) -> None:
        own = [names[each] for each in functions]
        running.append(KINDS[kind](*own, join(comm), *given))

    def call(names: Names, method: str, *given: Any) -> Any:
        return getattr(running[-1], method)(*given)

    return {"torch start": start, "torch call": call}


def warm_up() -> None:
    """Take a step of each kind: a hand-in has no files, so what PyTorch imports when it is first used must be there."""
    torch.set_num_threads(1)
    x, y, weights = np.ones((2, 3)), np.array([0, 1]), np.ones(3 * 2 + 2)
    names = {"step": _step, "attach": _attach, "stage": _stage}
    names |= {"start": _start, "zero": _zero, "shard": _shard}
    ready: Any = (lambda size: None), (lambda: None)
    for kind, functions, given, steps in (
        ("data_parallel", ["step"], [False], [x, y, 0.1]),
        ("data_parallel", ["step"], [True], [x, y, 0.1]),
        ("overlap", ["attach"], [4, *ready], [x, y, 2, 0.1]),
        ("pipeline", ["stage"], [True], [[x], [y], 0.1]),
        ("sharded", ["start", "zero"], [0], [x, y, 2, 0.1, np.inf]),
        ("fsdp", ["shard"], [0.1], [x, y, np.inf]),
    ):
        own = programs()
        own["torch start"](names, kind, Alone(), functions, [3, 2], weights, *given)
        for _ in range(2):  # DDP arranges its buckets after the first one
            own["torch call"](names, "step", *steps)
        own["torch call"](names, "weights")
        dist.destroy_process_group()


class Alone:
    """The communicator of two ranks, of which the other one gives the same: on one rank PyTorch takes shorter ways."""

    rank, size = 0, 2

    def Iallreduce(self, send: Any, receive: Any) -> "Alone":
        """Start a sum of one array."""
        return self

    def Wait(self) -> bool:
        """It has ended."""
        return True

    def Allgather(self, send: Any, receive: Any) -> None:
        """Gather."""
        receive[...] = np.tile(send, 2)

    def Reduce_scatter_block(self, send: Any, receive: Any) -> None:
        """Keep the first part."""
        receive[...] = send[: receive.size]

    def Bcast(self, buffer: Any, root: int = 0) -> None:
        """It is there already."""

    def Barrier(self) -> None:
        """There is nobody to wait for."""


def _step(network: Any, loss: Any, x: Any, y: Any, group: Any, rate: float) -> Any:
    network.zero_grad()
    value = loss(network(x), y, len(x))
    value.backward()
    dist.all_reduce(value.detach(), group=group)
    return value


def _attach(network: Any, group: Any, bucket: int) -> Any:
    return lambda: None


def _stage(stage: Any, x: Any, y: Any, loss: Any, group: Any, rate: float) -> Any:
    value = loss(stage(x[0]), y[0], len(x[0]))
    value.backward()
    return value


def _start(zero: int, weights: Any, group: Any) -> Any:
    return weights[: weights.numel() // 2].clone()


def _zero(zero: int, held: Any, gradient: Any, update: Any, group: Any) -> None:
    whole = held.new_empty(2 * held.numel())
    dist.all_gather_into_tensor(whole, held, group=group)
    own = torch.empty_like(held)
    dist.reduce_scatter_tensor(own, gradient(whole), group=group)
    update(held, own, torch.zeros_like(held))


def _shard(network: Any, group: Any) -> Any:
    return fully_shard(network, mesh=DeviceMesh.from_group(group, "cpu"))
