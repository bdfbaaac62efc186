"""A class's folder: its learners on this machine, its database, and the keys of its server.

class.json          port, the token of its address, the keys of its board and of login cookies: the same after a restart
class.sqlite        all answers, also of learners on other machines
learners/ID/        the records of learners on this machine, without their tokens
"""

import json
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lib_dlhpc.classroom.learner import ABOUT, Learner, consent, identity, now
from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import write_text

SETTINGS, DATABASE, LEARNERS = "class.json", "class.sqlite", "learners"


@dataclass(frozen=True)
class Keys:
    """What a class's server needs again after a restart, so that browsers that were let in stay so.

    cookie: the secret that signs login cookies. port: 0 before the first start.
    """

    token: str
    board: str
    port: int = 0
    cookie: str = ""


def keys(folder: Path) -> Keys:
    """Return the keys of a class; the folder is made if it is not there. Raises SpecError if they cannot be read."""
    file = folder / SETTINGS
    try:
        found = Keys(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = Keys(secrets.token_urlsafe(12), secrets.token_urlsafe(16))
    except (ValueError, TypeError) as error:
        raise SpecError(f"{file}: not the settings of a class: {error}.") from None
    if found.cookie:
        return found
    return store_keys(folder, replace(found, cookie=secrets.token_urlsafe(32)))


def store_keys(folder: Path, made: Keys) -> Keys:
    """Store the keys of a class, readable for its owner only, and return them."""
    write_text(folder / SETTINGS, json.dumps(asdict(made)) + "\n", mode=0o600)
    return made


def member(folder: Path, token: str) -> Learner | None:
    """Return the learner with this token; None if nobody with it has joined on this machine."""
    if not token:
        return None
    own = folder / LEARNERS / identity(token)
    try:
        about = json.loads((own / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Learner(token, own, about.get("name", ""), joined=about.get("joined", ""))


def admit(folder: Path, name: str = "", before: Learner | None = None, token: str = "") -> Learner:
    """Let a learner join on this machine, and return them with their token, by default a new one.

    before: the learner, if they have joined already; they keep their token, and their name if none is given.
    Raises SpecError for a name of more than one line.
    """
    token = before.token if before else token or secrets.token_urlsafe(16)
    joined = before.joined if before else now()
    name = name.strip() or (before.name if before else "")
    own = folder / LEARNERS / identity(token)
    consent(own, {"name": name, "joined": joined})
    return Learner(token, own, name, joined=joined)
