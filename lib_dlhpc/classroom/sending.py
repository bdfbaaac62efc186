"""From a learner's machine to a class: what is new in the record, again and again until it is acknowledged.

A batch that arrived without its acknowledgment arrives once more; the class knows each entry by its id.
"""

import json
import os
import threading
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from urllib.request import ProxyHandler, Request, build_opener

from lib_dlhpc.classroom import record
from lib_dlhpc.classroom.entry import Entry
from lib_dlhpc.classroom.learner import RECORD, SENT, Learner, at_home
from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import write_text

BATCH = 200
EVERY = 5.0  # s between tries while the class does not answer
PATIENCE = 10.0  # s for one answer
WRONG_TOKEN = 403
# As a hub sets them for its learners' servers.
OF_HUB, HUB_TOKEN = "DLHPC_CLASS_SERVER", "JUPYTERHUB_API_TOKEN"
AWAY = (OSError, HTTPException, ValueError)  # HTTPError and URLError are OSErrors
_wanted = threading.Event()
_sender: list[threading.Thread] = []


def checked_address(address: str) -> str:
    """Return the address of a class. Raises SpecError if it is none."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SpecError(
            f"{address!r}: expected the address of a class, as http://host:8000/?token=..."
        )
    return address


def check_door(learner: Learner) -> None:
    """Ask a class whether it takes answers of this learner; nothing need be on this disk for it.

    Raises SpecError where the address is not that of a class or its token is wrong, one of AWAY if nobody answers.
    """
    try:
        request(learner, "records", {"name": learner.name, "entries": []})
    except HTTPError as error:
        place = learner.server.partition("?")[0]
        if error.code == WRONG_TOKEN:
            raise SpecError(
                f"{place}: the token of this address is wrong; copy the whole address for learners that"
                " `dlhpc class serve` printed."
            ) from None
        if error.code in (404, 405):
            raise SpecError(f"{place}: there is no class at this address.") from None
        raise


def of_hub() -> str:
    """Return the address of the class of the hub that started this process; empty without one."""
    return os.environ.get(OF_HUB, "") if os.environ.get(HUB_TOKEN) else ""


def account_token(server: str) -> str:
    """Join the class of a hub by one's account, and return the account's token. Raises one of AWAY."""
    return str(request(Learner("", Path(), server=server), "join", {})["token"])


def unsent(learner: Learner) -> int:
    """Return how many entries the class does not have yet."""
    return len(_own(learner, record.read_from(learner.folder, _sent(learner.folder))[0]))


def send(learner: Learner, patience: float = PATIENCE) -> int:
    """Send what is new; return how many entries were acknowledged. Raises one of AWAY if the class does not answer."""
    start, count = _sent(learner.folder), 0
    found, end = record.read_from(learner.folder, start)
    entries = _own(learner, found)
    # With nothing to send, an empty request asks whether the class answers.
    for first in range(0, max(len(entries), 1), BATCH):
        batch = entries[first : first + BATCH]
        body = {
            "name": learner.name,
            "joined": learner.joined,
            "entries": [json.loads(entry.line()) for entry in batch],
        }
        request(learner, "records", body, patience)
        count += len(batch)
    if end != start:
        write_text(learner.folder / SENT, f"{end}\n")
    return count


def request(learner: Learner, what: str, body: Any, patience: float = PATIENCE) -> Any:
    """Post to a learner's class, in their name; return its answer. Raises one of AWAY."""
    parts = urlsplit(learner.server)
    door = dict(parse_qsl(parts.query)).get("token", "")
    query = urlencode({"token": door}) if door else ""
    path = f"{parts.path.rstrip('/')}/class/api/{what}"
    headers = {"Content-Type": "application/json", "X-Learner": learner.token}
    if learner.server == of_hub():  # no other server gets what opens the hub
        headers["Authorization"] = f"token {os.environ[HUB_TOKEN]}"
    whole = urlunsplit((parts.scheme, parts.netloc, path, query, ""))
    asked = Request(whole, json.dumps(body).encode(), headers)
    here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    with build_opener(*([ProxyHandler({})] if here else [])).open(asked, timeout=patience) as reply:
        return json.load(reply)


def soon() -> None:
    """Send in the background, from a thread that ends with this process."""
    if not _sender or not _sender[0].is_alive():
        _sender[:] = [threading.Thread(target=_keep_sending, daemon=True)]
        _sender[0].start()
    _wanted.set()


def _keep_sending() -> None:
    while _wanted.wait():
        _wanted.clear()
        learner = at_home()
        while learner is not None and learner.server:
            try:
                send(learner)
                break
            except HTTPError as error:
                if error.code in (400, WRONG_TOKEN):  # not this class
                    break
            except AWAY:
                pass
            _wanted.wait(EVERY)
            learner = at_home()


def _own(learner: Learner, entries: list[Entry]) -> list[Entry]:
    """Return the entries under a learner's id: a class refuses those from before they had an account on its hub."""
    return [entry for entry in entries if entry.learner == learner.id]


def _sent(folder: Path) -> int:
    """Return the byte of the record up to which the class has it."""
    with suppress(OSError, ValueError):
        sent = int((folder / SENT).read_text())
        if sent <= (folder / RECORD).stat().st_size:
            return sent
    return 0
