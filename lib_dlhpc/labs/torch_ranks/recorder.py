"""What a rank exchanges: every collective and message of torch.distributed, also those of DDP and FSDP.

They are operators of the namespace c10d, which a dispatch mode sees like any other operator.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TWICE = ("allreduce_", "allreduce_coalesced_")  # what enters a rank is as long as what leaves it
MESSAGES = ("send", "recv_", "recv_any_source_")

# gloo drops a message with its request; the receiver would hang, and nobody would know why
SENT: list[Any] = []


class Recorder(TorchDispatchMode):
    """Records the communication of a block. moved: B in and out of this rank. sent: messages.

    events: ("launch", numbers) of a collective and ("wait", 0), in order.

    tell: called with ("call", (operator, numbers)) before each collective, and before each message with ("at", where
    this rank is, in words).
    """

    def __init__(self, tell: Callable[[str, Any], None]) -> None:
        super().__init__()
        self.moved, self.sent = 0, 0
        self._waited: list[Any] = []  # references, so that no two have the same id
        # References: gloo drops a message with its request, and then the receiver hangs.
        self._alive: list[Any] = []
        self.events: list[tuple[str, int]] = []
        self._tell = tell

    @property
    def unwaited(self) -> int:
        """Return how many messages nobody has waited for."""
        return self.sent - len({id(work) for work in self._waited})

    def __enter__(self) -> Any:
        self._tell("at", "computes")
        self._wait = dist.Work.wait
        dist.Work.wait = self._wait_noted()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        dist.Work.wait = self._wait
        super().__exit__(*error)

    def _wait_noted(self) -> Callable[..., Any]:
        def wait(work: Any, *limit: Any) -> Any:
            self.events.append(("wait", 0))
            if self.sent:  # a reference to a collective would keep its tensors alive
                self._waited.append(work)
            return self._wait(work, *limit)

        return wait

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self._record(func._schema.name.split("::")[1], args)
        result = func(*args, **(kwargs or {}))
        if func.namespace == "c10d" and self.sent:
            SENT.append(result)
        return result

    def _record(self, name: str, args: Any) -> None:
        tensors = [each for each in tree_leaves(args) if isinstance(each, torch.Tensor)]
        size = sum(each.numel() for each in tensors)
        times = 2 if name in TWICE else 1
        self.moved += times * sum(each.nbytes for each in tensors)
        if name in MESSAGES:
            self.sent += 1
            peer = next((each for each in args if type(each) is int), "any")
            self._tell("at", f"is in or after {name.strip('_')}, peer {peer}")
        else:
            self.events.append(("launch", size))
            self._tell("call", (name.strip("_"), size))
