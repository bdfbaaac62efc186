"""Voila with a front door, files that it does not have, and a way for a page to say that it closes."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from tornado.web import HTTPError, StaticFileHandler
from voila.app import Voila
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler

from lib_dlhpc.explore.blocks import built
from lib_dlhpc.explore.front.page import front_page
from lib_dlhpc.explore.server import classroom
from lib_dlhpc.explore.server.door import TemplateFiles, behind_door
from lib_dlhpc.explore.server.forked import end_all

CLASS = '<script src="{}voila/templates/dlhpc/static/class.js"></script>'


class Farewell(VoilaShutdownKernelHandler):
    """Ends the kernel of a page that is closed."""

    def check_xsrf_cookie(self) -> None:
        """A closing page cannot send the token; knowing the kernel's id is proof enough."""

    async def post(self, kernel_id: str) -> None:
        """End the kernel, if it is still there: the page may say it twice."""
        if kernel_id in self.kernel_manager:
            await self.kernel_manager.shutdown_kernel(kernel_id, now=True)
        self.set_status(204)


class FrontDoor(JupyterHandler):
    """The first page of the course."""

    def initialize(self, more: bytes = b"") -> None:
        self.more = more

    def get(self) -> None:
        """Send it."""
        self.finish(front_page().read_bytes().replace(b"</body>", self.more + b"</body>"))


class Server(Voila):
    """Serves notebooks as pages. of_course: with the front door. listening: called with the port once it is right.

    classroom: the folder of the class that answers are collected in, if there is one.
    """

    of_course = False
    classroom: Path | None = None
    listening: Callable[[int], None] = staticmethod(print)

    def init_handlers(self) -> list[Any]:
        """Return the routes: Voila's but for the lists of files of JupyterLab's gallery, and those of this course."""
        vega = {"path": str(built.vega().parent)}
        own: list[Any] = [
            (f"{self.base_url}voila/api/shutdown/(.*)", Farewell),
            (f"{self.base_url}voila/templates/(.*)", TemplateFiles),
            (rf"{self.base_url}voila/built/(vega-\w+\.js)", StaticFileHandler, vega),
        ]
        theirs = super().init_handlers()
        asks = CLASS.format(self.base_url).encode() if self.classroom else b""
        if self.of_course:
            own.insert(0, (self.base_url, FrontDoor, {"more": asks}))
        if self.classroom:
            own += classroom.routes(self.base_url, self.classroom)
        theirs = [route for route in theirs if "/voila/api/contents" not in route[0]]
        return behind_door([*own, *theirs])

    def stop(self) -> None:
        """End all kernels, also one that is only starting, which Voila does not know yet."""
        try:
            with suppress(HTTPError):  # 404, of that one
                super().stop()
        finally:
            end_all()

    def launch_browser(self) -> None:
        """Voila calls this once it listens."""
        self.listening(self.port)
