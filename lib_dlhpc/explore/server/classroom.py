"""What a class adds to the pages: learners join and take it back, answers arrive, the teacher's board.

    class/api/join       a visitor consents, and gets the cookie by which kernels know them
    class/api/me         whether the visitor has joined
    class/api/records    answers from a learner's own machine
    class/api/forget     a learner takes all back
    report               what a learner answered, and what to review
    class/board          the board, for those who have its key; class/api/board is what it shows

The door (door.py) is before all of them. Requests that change something are JSON, which another site cannot send.
"""

import asyncio
import hmac
import json
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from tornado.web import HTTPError

from lib_dlhpc.classroom import accounts, board, classes, database, learner
from lib_dlhpc.classroom.entry import Entry
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.board.page import board_page
from lib_dlhpc.explore.board.report import report_page
from lib_dlhpc.explore.server.door import Account, is_https

LEARNER, ACCOUNT, BOARD = "dlhpc-learner", "dlhpc-account", "dlhpc-board"  # cookies
TEACHERS = "dlhpc-teachers"  # the group of a hub that sees the board
DAYS = 200


class ClassHandler(JupyterHandler):
    """What all have: the class's folder."""

    def initialize(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / classes.DATABASE

    def check_xsrf_cookie(self) -> None:
        """A form of another site cannot send JSON, and its scripts may not."""
        kind = self.request.headers.get("Content-Type", "")
        if self.request.method != "GET" and kind.split(";")[0] != "application/json":
            raise HTTPError(403, "expected JSON")

    def body(self) -> dict[str, Any]:
        try:
            given = json.loads(self.request.body)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise HTTPError(400, "expected a JSON object")
        return given

    def keep(self, name: str, value: str, readable: bool = False) -> None:
        """Set a cookie for this class. readable: for the page's scripts."""
        self.set_cookie(
            name,
            value,
            path=self.base_url,
            expires_days=DAYS,
            httponly=not readable,
            samesite="Strict",
            secure=is_https(self.request),
        )

    def account(self) -> Account | None:
        """Return whom a hub knows the visitor as; None where no hub says who comes."""
        return self.current_user if isinstance(self.current_user, Account) else None

    def secret(self) -> str:
        """Return the visitor's secret: of their account, or the one that they bring, empty without."""
        account = self.account()
        if account:
            return accounts.token(self.folder, account.username)
        return self.request.headers.get("X-Learner") or self.get_cookie(LEARNER, "") or ""

    def visitor(self) -> learner.Learner | None:
        return classes.member(self.folder, self.secret())


class Me(ClassHandler):
    """Whether the visitor has joined."""

    def get(self) -> None:
        found = self.visitor()
        account = self.account()
        name = account.username if account else found.name if found else ""
        self.finish({"joined": found is not None, "name": name})


class Report(ClassHandler):
    """What the visitor answered, and what to review."""

    def get(self) -> None:
        self.finish(report_page(self.visitor()))


class Join(ClassHandler):
    """A visitor consents, or one who has joined gives a name, or another one; accounts of a hub have theirs."""

    def post(self) -> None:
        name, account = self.body().get("name", ""), self.account()
        before, token = self.visitor(), ""
        if account:
            name, token = account.username, self.secret()
        try:
            found = classes.admit(self.folder, str(name), before, token)
        except SpecError as error:
            raise HTTPError(400, str(error).replace("%", "%%")) from None
        if before is None:
            self.keep(LEARNER, found.token, readable=True)
        elif found != before:
            database.rename(self.file, found.id, found.name)
        self.finish({"joined": True, "name": found.name, **({"token": token} if token else {})})


class Forget(ClassHandler):
    """A learner takes all back, here or from their own machine."""

    async def post(self) -> None:
        token = self.secret()
        if not token:
            raise HTTPError(400, "expected a learner's token")
        count = await asyncio.to_thread(forget, self.folder, learner.identity(token))
        self.clear_cookie(LEARNER, path=self.base_url)
        self.finish({"forgotten": count})


class Records(ClassHandler):
    """Answers from a learner's own machine; acknowledged once they are on this disk."""

    async def post(self) -> None:
        body, token, account = self.body(), self.secret(), self.account()
        own = learner.identity(token)
        try:
            entries = [Entry.read(json.dumps(each)) for each in body.get("entries", [])]
        except (SpecError, TypeError) as error:
            raise HTTPError(400, str(error).replace("%", "%%")) from None
        if not token or any(entry.learner != own for entry in entries):
            raise HTTPError(403, "entries of another learner")
        name, joined = str(body.get("name", "")), str(body.get("joined", ""))
        name = account.username if account else name
        add = partial(database.insert, self.file, entries, name[: learner.LONGEST_NAME], joined)
        new = await asyncio.to_thread(add)
        if name and not entries:  # a learner joined once more, with a name
            await asyncio.to_thread(database.rename, self.file, own, name[: learner.LONGEST_NAME])
        self.finish({"acknowledged": len(entries), "new": new})


class BoardHandler(ClassHandler):
    """For those who have the key, in the address or from then on in a cookie, and for a hub's group of teachers."""

    def allowed(self) -> bool:
        account = self.account()
        if account and TEACHERS in account.groups:
            return True
        key = self.get_argument("key", "") or self.get_cookie(BOARD, "") or ""
        return hmac.compare_digest(key.encode(), classes.keys(self.folder).board.encode())


class Board(BoardHandler):
    """The page."""

    def get(self) -> None:
        if not self.allowed():
            raise HTTPError(403, "the board")
        if self.get_argument("key", ""):
            self.keep(BOARD, self.get_argument("key"))
            self.redirect(f"{self.base_url}class/board")  # a projector shows the address
            return
        self.finish(board_page())


class BoardState(BoardHandler):
    """What the page shows, unless it has that."""

    async def get(self) -> None:
        if not self.allowed():
            raise HTTPError(403, "the board")
        self.set_header("Cache-Control", "no-store")
        version = await asyncio.to_thread(database.version, self.file)
        named = self.get_argument("named", "") == "1"
        if self.get_argument("since", "") == f"{version}":
            self.set_status(204)
            self.finish()
            return
        self.finish(await asyncio.to_thread(board.board, self.file, named))


def forget(folder: Path, who: str) -> int:
    """Delete a learner's folder and answers; return how many answers there were."""
    learner.forget(folder / classes.LEARNERS / who)
    return database.forget(folder / classes.DATABASE, who)


def routes(base_url: str, folder: Path) -> list[Any]:
    """Return the routes of a class."""
    handlers = {
        "api/join": Join,
        "api/me": Me,
        "api/records": Records,
        "api/forget": Forget,
        "api/board": BoardState,
        "board": Board,
    }
    listed = [(f"class/{path}", handler) for path, handler in handlers.items()]
    return [
        (f"{base_url}{path}", handler, {"folder": folder})
        for path, handler in [*listed, ("report", Report)]
    ]
