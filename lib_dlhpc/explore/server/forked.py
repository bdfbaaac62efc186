"""Kernels that are forked from one process which has imported what the pages import.

A kernel of its own imports for half a second, and holds 60 MB that are the same in each; a forked one is there at once
and shares them. Python's fork server does the forking; where it has none (Windows), kernels start as they always do.
"""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable
from json import dumps, loads
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

NAME = "dlhpc-forked"  # as pyproject.toml registers it
# What every kernel needs, and this module, in which a fork finds `kernel`.
SHARED = ("ipykernel.kernelapp", "ipykernel.ipkernel", "numpy", "ipywidgets", "anywidget", __name__)
CONTEXT = multiprocessing.get_context("forkserver") if os.name == "posix" else None


def begin(modules: Iterable[str], folder: Path) -> None:
    """Start the process that kernels are forked from: it imports the modules. folder: for its socket."""
    assert CONTEXT is not None
    CONTEXT.set_forkserver_preload([*SHARED, *modules])
    # Else Python makes a folder that nobody removes if this process is killed, with a path of any length.
    multiprocessing.current_process()._config["tempdir"] = str(folder)  # type: ignore[attr-defined]
    forkserver.ensure_running()


def kernel(connection_file: str, folder: str, environment: dict[str, str]) -> None:
    """Be a kernel, in a process that was forked for it; end with the server."""
    os.setsid()  # an interrupt for the server is none for its kernels
    gc.freeze()  # a search for garbage writes into what it looks at, and all that is shared would be copied
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    import ipywidgets
    import numpy as np
    from ipykernel.kernelapp import IPKernelApp

    np.random.seed()  # noqa: NPY002, all forks share the state of the generator that legacy code draws from
    app = IPKernelApp.instance(parent_handle=os.getppid())
    app.initialize(["-f", connection_file])
    ipywidgets.load_ipython_extension(app.shell)  # it was imported before there was a shell
    app.start()


def end_all() -> None:
    """End every kernel that still runs; Python waits at its exit for each."""
    for process in multiprocessing.active_children():
        process.kill()


def _end_with_the_server() -> None:
    server = multiprocessing.parent_process()
    assert server is not None
    connection.wait([server.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


class Process:
    """A forked process with the methods of subprocess.Popen that Jupyter uses."""

    stdin = stdout = stderr = None

    def __init__(self, *arguments: Any) -> None:
        assert CONTEXT is not None
        self.forked = CONTEXT.Process(target=kernel, args=arguments)
        self.forked.start()
        self.pid = self.forked.pid

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return self.forked.exitcode

    def wait(self) -> int | None:
        """Return the exit status once it has ended."""
        self.forked.join()
        return self.forked.exitcode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.pid is not None and self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.forked.terminate()

    def kill(self) -> None:
        self.forked.kill()


class ForkedKernel(LocalProvisioner):
    """Starts a kernel by a fork, and is Jupyter's own way of starting one in all else."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel of this connection file."""
        file = cmd[cmd.index("-f") + 1]
        # Plain text: some names are members of an enumeration of Voila's, which a kernel would import to read them.
        environment = loads(dumps(kwargs["env"]))
        forked: Any = Process(file, kwargs["cwd"] or os.getcwd(), environment)
        self.process, self.pid, self.pgid = forked, forked.pid, forked.pid
        return self.connection_info
