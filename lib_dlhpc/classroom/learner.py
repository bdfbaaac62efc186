"""A learner: a token, a folder with what they answered, and their consent, without which nothing is written.

At home the folder is that of the environment variable DLHPC_LEARNER, by default lib_dlhpc/learner in the user's data
folder; it has no secret and can be handed in. The token, and the address of a class, which may have one, are in a file
beside it that only the learner can read. In a class on one machine each learner has a folder within the class's (see
classes.py), and the token is in a cookie.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import write_text

# sent: how much of the record the class has
ABOUT, RECORD, SENT = ("learner.json", "record.jsonl", "sent")
HOME = "DLHPC_LEARNER"
LONGEST_NAME = 100


@dataclass(frozen=True)
class Learner:
    """Who answers. token: a secret; folder: of the record; name: what the teacher knows them by, may be empty.

    server: the address to which answers are sent, empty if they stay here. joined: when they consented.
    """

    token: str
    folder: Path
    name: str = ""
    server: str = ""
    joined: str = ""

    @property
    def id(self) -> str:
        """What others may know of the token."""
        return identity(self.token)


def identity(token: str) -> str:
    """Return a learner's public name, from which nobody can compute the token."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def seed(token: str, question: str) -> int:
    """Return the seed of a learner's own variant of a question: the same on every machine and day."""
    return int.from_bytes(hashlib.sha256(f"{token} {question}".encode()).digest()[:8])


def home() -> Path:
    """Return the folder of the user of this machine."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(os.environ.get(HOME) or Path(data) / "lib_dlhpc" / "learner")


def at_home() -> Learner | None:
    """Return the learner of this machine; None before they have joined."""
    folder = home()
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        about |= json.loads(secret_file(folder).read_text(encoding="utf-8"))
        return Learner(about["token"], folder, about["name"], about["server"], about["joined"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def secret_file(folder: Path) -> Path:
    """Return where the token of a learner's folder is: beside it, as the folder is handed in."""
    return folder.with_name(f"{folder.name}-secret.json")


def join(folder: Path, name: str = "", server: str = "", token: str = "") -> Learner:
    """Write down that a learner consents, and return them. token: of one who has joined before.

    Raises SpecError for a name of more than one line, OSError where the folder cannot be written.
    """
    found = Learner(token or secrets.token_urlsafe(16), folder, name.strip(), server, now())
    consent(folder, {"name": found.name, "id": found.id, "joined": found.joined})
    secret = {"token": found.token, "server": server}
    write_text(secret_file(folder), json.dumps(secret) + "\n", mode=0o600)
    return found


def consent(folder: Path, about: Mapping[str, str]) -> None:
    """Write down who a folder is of, readable for its owner only. Raises SpecError for a name of more than one line."""
    name = about["name"]
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise SpecError(f"name = {name!r}: expected one line of at most {LONGEST_NAME} characters.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_text(folder / ABOUT, json.dumps(about, ensure_ascii=False) + "\n", mode=0o600)


def now() -> str:
    """Return the time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def forget(folder: Path) -> None:
    """Delete a learner's record and consent; other files in the folder stay."""
    for name in (ABOUT, RECORD, SENT):  # the consent first: nothing is written from here on
        (folder / name).unlink(missing_ok=True)
    secret_file(folder).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
