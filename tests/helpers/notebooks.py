"""Kernels of the notebooks that nbval runs: forked from one process that has imported what all of them import.

Each is a process of its own, as pages have them (lib_dlhpc.explore.server.forked); to start one from nothing takes
longer than to run most notebooks, and labs do so in JupyterLab (tests/browser/test_labs.py).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lib_dlhpc.explore.server import forked
from lib_dlhpc.explore.server.serve import imported_modules


def fork_kernels(notebooks: Iterable[Path]) -> None:
    """Let nbval fork the kernels of these notebooks; where Python cannot, they start as they always do."""
    from nbval import kernel

    if forked.CONTEXT is None:
        return
    modules = {name for notebook in notebooks for name in imported_modules(notebook)}
    forked.CONTEXT.set_forkserver_preload([*forked.SHARED, *sorted(modules)])

    class Forked(kernel.KernelManager):
        @property
        def kernel_spec(self) -> Any:
            spec = super().kernel_spec
            spec.metadata = {
                **spec.metadata,
                "kernel_provisioner": {"provisioner_name": forked.NAME},
            }
            return spec

    kernel.KernelManager = Forked
