"""Voila with a front door, files that it does not have, and a way for a page to say that it closes."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from tornado.web import HTTPError, RedirectHandler, StaticFileHandler
from voila import notebook_renderer
from voila.app import Voila
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler
from voila.tornado.handler import TornadoVoilaHandler

from lib_dlhpc.classroom import recording
from lib_dlhpc.explore import course
from lib_dlhpc.explore.blocks import built
from lib_dlhpc.explore.board.report import report_page
from lib_dlhpc.explore.front.page import RENDER, front_page
from lib_dlhpc.explore.front.teach import teach_page
from lib_dlhpc.explore.server import classroom
from lib_dlhpc.explore.server.door import (
    NAMES,
    TemplateFiles,
    behind_door,
    is_https,
    is_local,
    own_names,
)
from lib_dlhpc.explore.server.forked import end_all
from lib_dlhpc.explore.server.markdown import ADDRESS, Markdown, notes_of
from lib_dlhpc.explore.server.pages import Executor, Page

notebook_renderer.VoilaExecutor = Executor  # there is no setting for it
SHORT = {  # addresses that one can say
    "explorer": RENDER + course.EXPLORER,
    "glossary": f"{RENDER}glossary.md",
    "labs": "voila/labs/README.md",
}
CLASS = '<script src="{}voila/templates/dlhpc/static/class.js"></script>'


class Farewell(VoilaShutdownKernelHandler):
    """Ends the kernel of a page that is closed."""

    def check_xsrf_cookie(self) -> None:
        """A closing page cannot send the token; knowing the kernel's id is proof enough."""

    async def post(self, kernel_id: str) -> None:
        """End the kernel, if it is still there: the page may say it twice."""
        await self.kernel_manager.end(kernel_id)
        self.set_status(204)


class FrontDoor(JupyterHandler):
    """The first page of the course."""

    def initialize(self, more: bytes = b"") -> None:
        self.more = more

    def get(self) -> None:
        """Send the page. What shows links to others fetches their picture by its whole address only."""
        scheme = "https" if is_https(self.request) else "http"
        home = escape(f"{scheme}://{self.request.host}{self.base_url}").encode()
        page = _front().replace(b'content="voila/', b'content="' + home + b"voila/")
        self.finish(page.replace(b"</body>", self.more + b"</body>"))


@cache
def _front() -> bytes:
    """Return the page, also after another version of this package has drawn its own in place of the file."""
    return front_page().read_bytes()


class Teach(JupyterHandler):
    """What there is for a class. root: the served folder. notes: whether those of instructors may be read.

    in_class: whether the server is that of a class.
    """

    def initialize(self, root: Path, notes: bool, in_class: bool) -> None:
        self.root, self.notes, self.in_class = root, notes, in_class

    def get(self) -> None:
        shown = notes_of(self.root) if self.notes else {}
        self.finish(teach_page(self.base_url, shown, self.in_class))


class OwnReport(JupyterHandler):
    """What the learner of this machine answered, and what to review."""

    def get(self) -> None:
        self.finish(report_page(recording.present()))


class Server(Voila):
    """Serves notebooks as pages. of_course: with the front door. listening: called with the port once it is right.

    classroom: the folder of the class that answers are collected in, if there is one. before_the_door: routes for who
    has not logged in yet.
    """

    before_the_door: Sequence[Any] = ()

    of_course = False
    classroom: Path | None = None
    listening: Callable[[int], None] = staticmethod(print)

    @property
    def private(self) -> bool:
        """Whether it serves this machine alone, and no class: others must not read solutions."""
        # Additional names are those of a proxy that others use.
        alone = self.tornado_settings.get(NAMES) == own_names(self.ip)
        return self.classroom is None and is_local(self.ip) and alone

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
            _front()
            own.insert(0, (self.base_url, FrontDoor, {"more": asks}))
            here = {"root": Path(self.root_dir), "notes": self.private}
            own += [
                (f"{self.base_url}{ADDRESS}", Markdown, here),
                (f"{self.base_url}teach", Teach, here | {"in_class": bool(self.classroom)}),
            ]
            own += [] if self.classroom else [(f"{self.base_url}report", OwnReport)]
            own += [
                (
                    f"{self.base_url}{name}/?",
                    RedirectHandler,
                    {"url": self.base_url + to, "permanent": False},
                )
                for name, to in SHORT.items()
            ]
        if self.classroom:
            own += classroom.routes(self.base_url, self.classroom)
        theirs = [
            (pattern, Page if handler is TornadoVoilaHandler else handler, *rest)
            for pattern, handler, *rest in theirs
            if "/voila/api/contents" not in pattern
        ]
        return [*self.before_the_door, *behind_door([*own, *theirs])]

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
