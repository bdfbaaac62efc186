"""A class beside its pages: answers are collected while they are served, and the teacher gets the board's address."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

from lib_dlhpc.classroom import classes, learner, recording, sending
from lib_dlhpc.classroom import collecting as folders

NOWHERE = "192.0.2.1"  # an address for documentation (RFC 5737); nothing is sent there


@contextmanager
def collecting(folder: Path | None) -> Iterator[None]:
    """Collect the answers of a class's learners on this machine within the block, and what is left at its end.

    Without a class, the learner of this machine sends what their class does not have yet.
    """
    if folder is None:
        send_what_is_left()
        yield
        return
    classes.keys(folder)  # makes the folder
    stop = threading.Event()
    collector = folders.Collector(folder / classes.LEARNERS, folder / classes.DATABASE)
    collector.collect()
    thread = threading.Thread(target=folders.keep_collecting, args=(folder, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        collector.collect()


def for_the_teacher(folder: Path, home: str, token: str, ip: str) -> str:
    """Print where learners and the teacher go, and return the teacher's address; the port stays the class's.

    home: the server's address on this machine. token: of its door, may be empty. ip: where it listens.
    """
    from lib_dlhpc.explore.server.door import is_local  # loads the server's packages

    keys, at = classes.keys(folder), urlsplit(home)
    if not keys.port:
        keys = classes.store_keys(folder, replace(keys, port=at.port or 0))
    door = f"token={quote(token)}" if token else ""
    host = own_address() if ip == "0.0.0.0" else at.hostname
    only = "   (this machine only; --ip 0.0.0.0 lets the room in)" if is_local(ip) else ""
    print(f"For learners:             http://{host}:{at.port}{at.path}{door and '?'}{door}{only}")
    board = f"{home}class/board?{'&'.join(filter(None, (f'key={keys.board}', door)))}"
    print(f"For you alone, the board: {board}   (Ctrl-C ends it)", flush=True)
    return board


def own_address() -> str:
    """Return this machine's address in its network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((NOWHERE, 9))  # of a datagram socket: this only chooses a route
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def send_what_is_left() -> None:
    """Send, in the background, what a learner answered while their class was away."""
    found = learner.at_home()
    if found and found.server and recording.present():
        sending.soon()
