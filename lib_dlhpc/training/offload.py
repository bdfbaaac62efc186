"""Out-of-core training: data that does not fit in memory is on disk and is prefetched before use."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lib_dlhpc.training.activation_offload import ActivationOffload
from lib_dlhpc.training.disk import Disk
from lib_dlhpc.training.on_disk import OnDisk
from lib_dlhpc.training.optimizers import Optimizer


@contextmanager
def offloaded(what: str, folder: Path, optimizer: Optimizer) -> Iterator[dict[str, Any]]:
    """Yield the options of a Network: Network(model, ..., **options).

    what: "none"; "activations": saved activations wait on disk for backward; "all": weights, gradients and
    optimizer state as well, and the network updates its own weights, at network.store.rate, during backward.
    folder: on the disk. Its files are unlinked; their space is freed at the end.
    """
    options: dict[str, Any] = {}
    with ExitStack() as stack:
        if what != "none":
            disk = stack.enter_context(Disk(folder, "activations"))
            options["offload"] = partial(ActivationOffload, disk)
        if what == "all":
            disk = stack.enter_context(Disk(folder, "weights"))
            options["store"] = partial(OnDisk, disk=disk, optimizer=optimizer)
        yield options
