"""The door of the dashboards: what every request passes before anything answers it.

Host name. A page of another site can have its own name resolve to this server's address (DNS rebinding); a browser
then lets its scripts read what is here. So a request must name the server by a name of its list, or by an address,
which nobody can make lead elsewhere. Token. Where there is one, a request must bring it, or the cookie that a request
with it was given. Voila asks for neither on its static files and on one of its WebSockets; here all handlers do.
"""

import html
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http.client import responses
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

from jupyter_core.utils import ensure_async
from jupyter_server.auth import User
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado.httputil import HTTPServerRequest
from tornado.web import HTTPError
from voila.static_file_handler import TemplateStaticFileHandler
from voila.voila_identity_provider import VoilaIdentityProvider

from lib_dlhpc.explore.front.shell import error_page

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Settings of the server: its names, None for any; whether it may be asked for by any address; its class.
NAMES, ANY_ADDRESS, FOLDER = "dlhpc_names", "dlhpc_any_address", "dlhpc_class"
OF_COURSE = "dlhpc_course"  # whether it serves the course, whose pages an error then links

ASK = """<form><label>Token <input name="token" autocomplete="off" autofocus></label> <button>Open</button></form>"""
FAILED = "If reloading the page does not help, look for the reason in the terminal of the server."
MISTYPED = (
    "There is no such page",
    "The address may be mistyped, or the page may have moved. What there is:",
)


def is_local(ip: str) -> bool:
    """Return whether only this machine can reach a server that listens there."""
    return ip in LOOPBACK


def own_names(ip: str, more: Iterable[str] = ()) -> set[str]:
    """Return the names that a server which listens on `ip` goes by, and `more`, in lower case."""
    names = {"localhost", ip, *more}
    if not is_local(ip):
        host = socket.gethostname()
        names |= {host, f"{host.split('.')[0]}.local", socket.getfqdn()}
    return {name.lower().rstrip(".") for name in names}


def is_https(request: HTTPServerRequest) -> bool:
    """Return whether a visitor's browser came over HTTPS, as a proxy in front of this server says it."""
    forwarded = request.headers.get("X-Forwarded-Proto") or request.protocol
    return bool(forwarded.split(",")[0].strip().lower() == "https")


class Visitors(VoilaIdentityProvider):
    """Who comes with the token. There is no login page, on which a visitor could set a password for the others."""

    def get_handlers(self) -> list[tuple[str, object]]:
        return []

    def turn_away(self, handler: JupyterHandler) -> None:
        """Answer a request without a token."""
        raise HTTPError(403, "token")


@dataclass
class Account(User):
    """A visitor whom a hub knows by name, and by the groups that they are in."""

    groups: tuple[str, ...] = ()


class Door(JupyterHandler):
    """Mixed into every handler, before all else that it is."""

    def check_host(self) -> bool:
        if self.settings[NAMES] is None:
            return True
        name = self.request.host_name.rstrip(".")
        try:
            address = ip_address(name.strip("[]"))
        except ValueError:
            return name in self.settings[NAMES]
        return address.is_loopback or self.settings[ANY_ADDRESS] or name in self.settings[NAMES]

    async def prepare(self, **options: Any) -> None:
        if not self.check_host():
            raise HTTPError(403, "host")
        if await ensure_async(self.identity_provider.get_user(self)) is None:
            visitors: Any = self.identity_provider
            visitors.turn_away(self)
            return
        if re.search(r"[\x00-\x1f\x7f]", unquote(self.request.path)):
            raise HTTPError(404)
        parent: Any = super().prepare(**options)
        await ensure_async(parent)

    def check_xsrf_cookie(self) -> None:
        """A hub asks for its token even where a page only reads; what changes something is checked by its handler."""
        if self.request.method not in ("GET", "HEAD"):
            super().check_xsrf_cookie()

    def write_error(self, status_code: int, **about: Any) -> None:
        error = about.get("exc_info", (None, None))[1]
        which = error.log_message if isinstance(error, HTTPError) else ""
        if isinstance(self, APIHandler) and which not in ("host", "token", "hub"):
            super().write_error(status_code, **about)
            return
        status = f"{status_code} {responses.get(status_code, '')}"
        name = self.request.host_name
        at_door = {
            "host": (
                "This server has another name",
                f"This server is not known as {name!r}. To allow this name, start it with:"
                f" dlhpc explore --allow-host {name}",
                "",
            ),
            "token": (
                "A token is needed",
                "These pages need a token, which is in the address that was printed.",
                ASK,
            ),
            "hub": ("Log in first", "Log in at the hub, then open this page again.", ""),
        }
        self.set_header("Content-Type", "text/html; charset=utf-8")
        if which in at_door:
            title, why, more = at_door[which]
            self.finish(error_page(status, title, f"{html.escape(why)}</p><p>{more}"))
            return
        title, said = MISTYPED if status_code == 404 else (status, FAILED * (status_code >= 500))
        course = bool(self.settings.get(OF_COURSE))
        self.finish(error_page(status, title, said, html.escape(self.base_url), course))


class Nowhere(Door):
    """What answers an address that nothing else does."""

    async def prepare(self, **options: Any) -> None:
        await super().prepare(**options)
        raise HTTPError(404)


class TemplateFiles(TemplateStaticFileHandler):
    """Files of a page's template. Voila's own takes any other form of address for an error of the server."""

    def parse_url_path(self, path: str) -> str:
        parts = path.split("/")
        if len(parts) < 3 or parts[1] != "static" or not set(parts).isdisjoint({"", ".", ".."}):
            raise HTTPError(404)
        return str(super().parse_url_path(path))


def behind_door(handlers: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return routes (pattern, handler, ...) whose handlers all have the door before them."""
    guarded: dict[type, type] = {}
    for _, handler, *_ in handlers:
        guarded[handler] = type(handler.__name__, (Door, handler), {})
    return [(pattern, guarded[handler], *rest) for pattern, handler, *rest in handlers]
