"""A process group of torch.distributed whose calls a communicator of mpi4py's interface carries out.

DDP, FSDP and what a learner calls use it as they use gloo. Tensors are copied on their way, so that nothing of the
communicator keeps them in memory.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

BACKEND = "checked"
SUMS = (dist.ReduceOp.SUM, dist.ReduceOp.AVG)


class Work(dist.Work):
    """A call in flight. end: waits for it, and puts the result where it belongs; called once."""

    def __init__(self, tensors: list[torch.Tensor], end: Callable[[], Any]) -> None:
        super().__init__()
        self._tensors, self._end = tensors, end
        self._ended = False

    def wait(self, timeout: Any = None) -> bool:
        """Wait for its end."""
        if not self._ended:
            self._ended = True
            self._end()
        return True

    def is_completed(self) -> bool:
        """Return whether it was waited for."""
        return self._ended

    def get_future(self) -> Any:
        """Return a future that is complete: DDP waits for it from C++."""
        self.wait()
        future: Any = torch.futures.Future()
        future.set_result(self._tensors)
        return future


class Group(dist.ProcessGroup):
    """The ranks of a communicator."""

    def __init__(self, comm: Any) -> None:
        super().__init__(comm.rank, comm.size)
        self._comm, self._ranks = comm, comm.size

    def getBackendName(self) -> str:
        """Return the name under which it is registered."""
        return BACKEND

    @property
    def group_name(self) -> str:
        """Return the name by which operators find it."""
        return str(dist.distributed_c10d._get_process_group_name(self))

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """Start a sum over all ranks, in place."""
        mean, arrays = _is_mean(opts), [_copy(each) for each in tensors]
        requests = [self._comm.Iallreduce(None, each) for each in arrays]

        def end() -> None:
            for request, tensor, array in zip(requests, tensors, arrays, strict=True):
                request.Wait()
                _fill(tensor, array / self._ranks if mean else array)

        return Work(tensors, end)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """Start a sum of each tensor."""
        return self.allreduce(tensors, opts)

    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Gather a tensor of each rank into a list."""
        whole = self._gathered(inputs[0], sum(each.numel() for each in outputs[0]))
        for tensor, part in zip(outputs[0], np.split(whole, self._ranks), strict=True):
            _fill(tensor, part)
        return Work(outputs[0], _nothing)

    def all_gather_single(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any = None
    ) -> Work:
        """Gather a tensor of each rank into one."""
        _fill(output, self._gathered(given, output.numel()))
        return Work([output], _nothing)

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Gather several tensors."""
        for output, given in zip(outputs, inputs, strict=True):
            self.all_gather_single(output, given, opts)
        return Work(outputs, _nothing)

    def reduce_scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None
    ) -> Work:
        """Sum lists of tensors; keep this rank's tensor of the sum."""
        self._scattered(outputs[0], [_copy(each) for each in inputs[0]], _is_mean(opts))
        return Work(outputs, _nothing)

    def reduce_scatter_single(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any = None
    ) -> Work:
        """Sum tensors; keep this rank's part of the sum."""
        self._scattered(output, [_copy(given)], _is_mean(opts))
        return Work([output], _nothing)

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Sum and scatter several tensors."""
        for output, given in zip(outputs, inputs, strict=True):
            self.reduce_scatter_single(output, given, opts)
        return Work(outputs, _nothing)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """Broadcast the root's tensor."""
        array = _copy(tensors[0])
        self._comm.Bcast(array, opts.rootRank)
        _fill(tensors[0], array)
        return Work(tensors, _nothing)

    def barrier(self, opts: Any = None) -> Work:
        """Wait for all ranks."""
        self._comm.Barrier()
        return Work([], _nothing)

    def send(self, tensors: list[torch.Tensor], target: int, tag: int = 0) -> Work:
        """Start sending."""
        request = self._comm.Isend(_copy(tensors[0]), target, tag)
        return Work(tensors, request.Wait)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int = 0) -> Work:
        """Start receiving."""
        array = _copy(tensors[0])
        request = self._comm.Irecv(array, source, tag)

        def end() -> None:
            request.Wait()
            _fill(tensors[0], array)

        return Work(tensors, end)

    # Names before PyTorch 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _gathered(self, given: torch.Tensor, size: int) -> Any:
        own = _copy(given)
        whole = np.empty(size, own.dtype)
        self._comm.Allgather(own, whole)
        return whole

    def _scattered(self, output: torch.Tensor, parts: Sequence[Any], mean: bool) -> None:
        own = np.concatenate(parts)
        block = np.empty(output.numel(), own.dtype)
        self._comm.Reduce_scatter_block(own, block)
        _fill(output, block / self._ranks if mean else block)


def join(comm: Any) -> Any:
    """Let torch.distributed know the ranks of a communicator; return their group."""
    _COMMS.append(comm)
    store = dist.HashStore()
    dist.init_process_group(BACKEND, store=store, rank=comm.rank, world_size=comm.size)
    return dist.group.WORLD


_COMMS: list[Any] = []
dist.Backend.register_backend(BACKEND, lambda *_: Group(_COMMS[-1]), devices=["cpu"])


def _copy(tensor: torch.Tensor) -> Any:
    """Return the numbers of a tensor, flat."""
    return tensor.detach().contiguous().numpy().ravel().copy()


def _fill(tensor: torch.Tensor, numbers: Any) -> None:
    """Write numbers into a tensor as a network does: autograd does not see it."""
    tensor.detach().numpy()[...] = numbers.reshape(tensor.shape)


def _is_mean(opts: Any) -> bool:
    """Return whether a sum is divided by the ranks. Raises ValueError for what is no sum."""
    op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    if not any(op == each for each in SUMS):
        raise ValueError("the ranks only sum: leave out the operation, or pass ReduceOp.SUM")
    return bool(op == dist.ReduceOp.AVG)


def _nothing() -> None:
    """It has ended already."""
