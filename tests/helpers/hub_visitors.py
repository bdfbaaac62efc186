"""Visitors of a class behind a JupyterHub: they log in, open their JupyterLab and the pages, and answer."""

import json
import re
import time
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

from class_visitors import PATIENCE, Visitor


class HubVisitor(Visitor):
    """A visitor with an account. hub: its address."""

    def __init__(self, hub: str, account: str, answers: int, pause: float, page: str = "") -> None:
        super().__init__(f"{hub}services/dlhpc/", 0, answers, pause, page)
        self.hub, self.account, self.jar = hub, account, CookieJar()
        self.opener = build_opener(ProxyHandler({}), HTTPCookieProcessor(self.jar))
        self.open = self.opener.open

    def log_in(self) -> None:
        """Log in at the hub as a browser does; the password is that of its dummy authenticator."""
        with self.open(f"{self.hub}hub/login", timeout=PATIENCE) as form:
            token = re.search(r'name="_xsrf" value="([^"]+)"', form.read().decode())
        fields = {"username": self.account, "password": "any", "_xsrf": token and token[1]}
        with self.open(f"{self.hub}hub/login", urlencode(fields).encode(), timeout=PATIENCE):
            pass  # it leads to this learner's server
        with self.open(self.address, timeout=PATIENCE) as page:
            assert page.url == self.address

    def cookie(self, name: str, path: str) -> str:
        """Return the value of a cookie; empty without it."""
        found = [each.value for each in self.jar if (each.name, each.path) == (name, path)]
        return found[0] or "" if found else ""

    def asked(self, path: str) -> Any:
        """Return what an address of the class answers, as JSON."""
        with self.open(f"{self.address}{path}", timeout=PATIENCE) as said:
            return json.load(said)

    def spawn(self) -> str:
        """Start this learner's JupyterLab, and return its page once it is there."""
        until = time.monotonic() + PATIENCE
        self.open(f"{self.hub}hub/spawn", timeout=PATIENCE).close()
        while time.monotonic() < until:
            with self.open(f"{self.hub}user/{self.account}/lab", timeout=PATIENCE) as said:
                text = said.read().decode()
                if said.url.split("?")[0].endswith(f"/user/{self.account}/lab"):
                    return str(text)
            time.sleep(0.5)
        raise TimeoutError(f"the server of {self.account} did not start")

    def _cookies(self) -> dict[str, str]:
        about = Request(self.address)
        self.jar.add_cookie_header(about)
        return {"Cookie": str(about.get_header("Cookie", ""))}
