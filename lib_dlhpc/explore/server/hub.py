"""A class as a service of a JupyterHub: the hub says who comes, and visitors log in nowhere else.

Reference: JupyterHub, "Services" and "Services authentication" (jupyterhub.readthedocs.io); HubOAuth does what is said
there of tokens, cookies and the way to the hub's login and back.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from jupyter_server.base.handlers import JupyterHandler
from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler
from tornado.httputil import url_concat
from tornado.web import HTTPError
from tornado.websocket import WebSocketHandler

from lib_dlhpc.classroom import accounts, classes
from lib_dlhpc.classroom.learner import identity
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.server.classroom import ACCOUNT, LEARNER
from lib_dlhpc.explore.server.door import FOLDER, NAMES, Account, Visitors, is_https

URL, PREFIX = "JUPYTERHUB_SERVICE_URL", "JUPYTERHUB_SERVICE_PREFIX"
NEEDED = (URL, PREFIX, "JUPYTERHUB_API_TOKEN", "JUPYTERHUB_CLIENT_ID")


class Place(NamedTuple):
    """Where a hub wants its service: address and port on this machine, path of all its pages."""

    ip: str
    port: int
    base: str


def place() -> Place:
    """Return what the hub that started this process says. Raises SpecError where none did."""
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if missing:
        raise SpecError(
            f"--hub: expected to be started by a JupyterHub as its service; not set: {', '.join(missing)}."
        )
    at = urlsplit(os.environ[URL])
    if not at.hostname or not at.port:
        raise SpecError(f"{URL} = {os.environ[URL]!r}: expected http://ADDRESS:PORT.")
    return Place(at.hostname, at.port, os.environ[PREFIX])


class HubVisitors(Visitors):
    """Who is logged in at the hub and may use this service."""

    async def get_user(self, handler: JupyterHandler) -> Account | None:
        """Return the account of a request, by its cookie or its token; None without one."""
        hub = HubOAuth.instance()
        found = await hub.get_user(handler, sync=False)
        if not found or found["kind"] != "user" or not hub.check_scopes(hub.access_scopes, found):
            return None
        account = Account(found["name"], groups=tuple(found.get("groups") or ()))
        _remember(handler, account)
        return account

    def turn_away(self, handler: JupyterHandler) -> None:
        """Send a browser to the hub's login and back to the page; refuse everything else."""
        opens = handler.request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
        if handler.request.method != "GET" or not opens or isinstance(handler, WebSocketHandler):
            raise HTTPError(403, "hub")
        handler.redirect(_login(handler))


def _remember(handler: JupyterHandler, account: Account) -> None:
    """Let the page's scripts know the learner of this account, also after another one in the same browser."""
    folder: Path | None = handler.settings.get(FOLDER)
    if folder is None or isinstance(handler, WebSocketHandler):
        return
    token = accounts.token(folder, account.username)
    if classes.member(folder, token) is None:
        token = ""
    for name, value in ((LEARNER, token), (ACCOUNT, identity(f"account {account.username}"))):
        if (handler.get_cookie(name) or "") != value:
            secure = is_https(handler.request)
            handler.set_cookie(name, value, path=handler.base_url, samesite="Strict", secure=secure)


def _login(handler: JupyterHandler) -> str:
    hub, asked, more = HubOAuth.instance(), {}, {}
    if getattr(hub, "pkce_enabled", False):  # from JupyterHub 6 on
        verifier, challenge, method = hub.generate_pkce_code_challenge()
        more = {"code_verifier": verifier}
        asked = {"code_challenge": challenge, "code_challenge_method": method}
    asked["state"] = hub.set_state_cookie(handler, next_url=handler.request.uri, **more)
    return str(url_concat(hub.login_url, asked))


def add_hub(config: Any, folder: Path) -> None:
    """Let a server's visitors be those of the hub. folder: of the class.

    Any host name is right: the hub's cookie belongs to one, and a page under another one comes without.
    """
    config.Voila.identity_provider_class = HubVisitors
    config.Voila.tornado_settings.update({NAMES: None, FOLDER: folder, "compress_response": True})


def callback(base: str) -> tuple[str, type]:
    """Return the route by which a browser comes back from the hub's login."""
    return f"{base}oauth_callback", HubOAuthCallbackHandler
