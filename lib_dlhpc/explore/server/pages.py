"""A page and its kernel end together: a kernel may die, and a visitor may leave, while the page is still drawn.

Jupyter starts a dead kernel again, with nothing in it, and Voila then waits for the reply of the one that died. Here a
kernel that ended stays so. Its page is sent to the end, with a sentence that says it and a button that loads it again.
"""

import errno
import re
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_core.utils import ensure_async
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from tornado.ioloop import IOLoop
from tornado.web import HTTPError, authenticated
from voila.execute import VoilaExecutor, strip_code_cell_warnings
from voila.tornado.handler import TornadoVoilaHandler

LOST = "dlhpc_lost"  # in the metadata of a page's notebook, where its template reads it
KERNEL = re.compile(r'"kernelId": "([^"]+)"')


class Kernels(AsyncMappingKernelManager):
    """The kernels of pages. Voila adds what keeps some ready, if any are to be."""

    # By notebook: tasks, each of which starts a kernel.
    _pools: Mapping[str, list[Any]] = MappingProxyType({})

    def fill_if_needed(self, **options: Any) -> None:
        """Start kernels that are to be kept ready."""

    def _handle_kernel_died(self, kernel_id: str) -> None:
        IOLoop.current().add_callback(self.end, kernel_id)

    async def end(self, kernel_id: str) -> None:
        """End a kernel, and remove what is left of one that has ended; several may ask for it."""
        if kernel_id in self:
            with suppress(HTTPError):  # it was removed meanwhile
                await self.shutdown_kernel(kernel_id, now=True)

    async def renew(self, notebook: str) -> None:
        """Replace those that are kept ready for a notebook and have died."""
        pool = self._pools.get(notebook)
        if pool is None:
            return
        for started in [task for task in pool if task.done()]:
            kernel = "" if started.exception() else started.result()["kernel_id"]
            alive = kernel in self and await ensure_async(self.get_kernel(kernel).is_alive())
            if not alive and started in pool:
                pool.remove(started)
                await self.end(kernel)
        self.fill_if_needed(delay=0, notebook_name=notebook)


class Executor(VoilaExecutor):
    """Executes the cells of a page; those after its kernel's end are shown without output."""

    km: Any

    async def async_start_new_kernel_client(self) -> AsyncKernelClient:
        """Return what speaks to the kernel, or to nobody if that has ended or does not answer."""
        manager = self.km
        try:
            return await super().async_start_new_kernel_client()
        except RuntimeError:
            self.km = manager
            await self._lose()
            return manager.client()

    async def execute_cell(self, cell: NotebookNode, *about: Any, **options: Any) -> NotebookNode:
        """Return the cell with its output."""
        if LOST in self.nb.metadata:
            return cell
        try:
            return await super().execute_cell(cell, *about, **options)
        except DeadKernelError:
            await self._lose()
            return strip_code_cell_warnings(cell)

    async def _lose(self) -> None:
        self.nb.metadata[LOST] = True
        await self.km.parent.end(self.km.kernel_id)


class Page(TornadoVoilaHandler):
    """Draws a notebook, for as long as its visitor is there."""

    kernel, left = "", False

    @authenticated
    async def get(self, path: str | None = None) -> None:
        """Send the page in pieces. Who leaves before the last one cannot say which kernel is not needed any more."""
        await self.kernel_manager.renew(self.notebook_path or path)
        try:
            await self._send(path)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise HTTPError(404) from None

    async def _send(self, path: str | None) -> None:
        async for piece in self.get_generator(path=path):
            if not self.kernel and (found := KERNEL.search(piece)):
                self.kernel = found[1]
            if self.left:
                await self.kernel_manager.end(self.kernel)
            else:
                self.write(piece)
                self.flush()

    def on_connection_close(self) -> None:
        """End the kernel of a visitor who has left; what still draws the page then comes to its end."""
        super().on_connection_close()
        self.left = True
        IOLoop.current().add_callback(self.kernel_manager.end, self.kernel)
