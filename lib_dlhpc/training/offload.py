"""Training out of core: what does not fit in memory is on disk, and comes back just before it is used."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lib_dlhpc.training.aside import Aside
from lib_dlhpc.training.disk import Disk
from lib_dlhpc.training.on_disk import OnDisk
from lib_dlhpc.training.optimizers import Optimizer


@contextmanager
def offloaded(what: str, folder: Path, optimizer: Optimizer) -> Iterator[dict[str, Any]]:
    """Give what a Network is to be made with: Network(model, ..., **options).

    what: "none"; "activations", which wait on disk for backward; "all": weights, gradients and optimiser
    state as well, and the network moves its own weights, at network.store.rate, as backward goes. folder:
    on the disk. Its files have no names, and their space is free again at the end.
    """
    options: dict[str, Any] = {}
    with ExitStack() as stack:
        if what != "none":
            disk = stack.enter_context(Disk(folder, "activations"))
            options["aside"] = partial(Aside, disk)
        if what == "all":
            disk = stack.enter_context(Disk(folder, "weights"))
            options["store"] = partial(OnDisk, disk=disk, optimizer=optimizer)
        yield options
