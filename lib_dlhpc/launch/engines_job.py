"""Engines in a job, a controller and one engine a rank: python -m lib_dlhpc.launch.engines_job FOLDER RANKS.

They last as long as their owner holds a TCP connection open. However the owner ends, killed included, its end of the
connection closes, and the job notices at once, on any node.
"""

import hmac
import json
import os
import secrets
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from lib_dlhpc.launch import folder as run_folder
from lib_dlhpc.launch.batch import launch_words
from lib_dlhpc.launch.jobs import WORK, Ticket, read_ticket
from lib_dlhpc.launch.task import done, failed

LINE = "line.json"  # address of the connection, and the secret that opens it
PROFILE = "profile"  # the controller's folder, inside the job's private one
CLIENT = f"{PROFILE}/security/ipcontroller-client.json"
ENGINE = f"{PROFILE}/security/ipcontroller-engine.json"
PATIENCE = 180.0  # s for the owner to connect; a busy machine may need all of it
# ms between two heartbeats; how many may be missed, since computing ranks are alive
BEAT, MISSED = (500, 2400)
TICK = 0.1
ONE = "lib_dlhpc.launch.engine"  # on every rank
WORD = 32  # characters of the secret


def main(folder: Path, ranks: int) -> int:
    """Keep the engines until the connection closes; return 1 if they ended before, or no owner connected.

    Its children are ended by its parent (batch.py).
    """
    ticket, work, word = read_ticket(folder), folder / WORK, secrets.token_hex(WORD // 2)
    here = ticket.site.scheduler == "local"
    host = "127.0.0.1" if here else socket.gethostname()
    with socket.create_server(("127.0.0.1" if here else "0.0.0.0", 0)) as server:
        controller = _start(_controller(work, host, here))
        table = {"host": host, "port": server.getsockname()[1], "word": word}
        run_folder.write(work / LINE, table, private=True)
        return _keep(folder, ticket, controller, server, word)


def _keep(
    folder: Path,
    ticket: Ticket,
    controller: "subprocess.Popen[bytes]",
    server: socket.socket,
    word: str,
) -> int:
    line, engines = None, None
    until = time.monotonic() + PATIENCE
    while True:
        if engines is None and _written(folder / WORK / ENGINE):
            engines = _start(_engines(ticket, folder))
        for name, process in (("the controller", controller), ("the engines", engines)):
            if process is not None and process.poll() is not None:
                if not run_folder.errors(folder):  # else an engine has reported more
                    failed(folder, name, "Ended", f"with status {process.returncode}")
                return 1
        ready = select.select([server if line is None else line], [], [], TICK)[0]
        if line is None:
            line = accept(server, word) if ready else None
            if line is None and time.monotonic() > until:
                failed(folder, "engines", "TimeoutError", "no client connected")
                return 1
        elif ready and not read(line):
            done(folder, engines=ticket.ranks)
            return 0


def _controller(work: Path, host: str, here: bool) -> list[str]:
    """Return the command of the controller; traffic between nodes is encrypted."""
    return [
        *[sys.executable, "-m", "ipyparallel.controller", f"--profile-dir={work / PROFILE}"],
        *[f"--ip={host if here else '*'}", f"--location={host}", "--usethreads", "--nodb"],
        *[f"--IPController.enable_curve={not here}", "--log-level=ERROR"],
        *[f"--HeartMonitor.period={BEAT}", f"--HeartMonitor.max_heartmonitor_misses={MISSED}"],
    ]


def _engines(ticket: Ticket, folder: Path) -> list[str]:
    work = folder / WORK
    return [
        *[*launch_words(ticket, ONE), str(folder), "--mpi", f"--file={work / ENGINE}"],
        *[f"--profile-dir={work / PROFILE}", f"--timeout={PATIENCE:g}", "--log-level=ERROR"],
        *["--HistoryManager.enabled=False"],
        f"--IPEngine.max_heartbeat_misses={MISSED}",
    ]


def _start(words: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, env={**os.environ, "MPLBACKEND": "agg"}
    )


def _written(path: Path) -> bool:
    """Whether a JSON file is complete."""
    with suppress(OSError, ValueError):
        return bool(json.loads(path.read_text("utf-8")))
    return False


def accept(server: socket.socket, word: str) -> socket.socket | None:
    """Accept a connection; return it if it sends the secret."""
    line, _ = server.accept()
    line.settimeout(5.0)
    received = b""
    with suppress(OSError):
        while len(received) < WORD and (more := line.recv(WORD - len(received))):
            received += more
    if not hmac.compare_digest(received, word.encode()):
        line.close()
        return None
    keep_alive(line)
    return line


def read(line: socket.socket) -> bytes:
    """Return received data; empty if the other end is closed."""
    with suppress(OSError):
        return line.recv(1)
    return b""


def keep_alive(line: socket.socket) -> None:
    """Enable TCP keepalive, so that the connection also ends when the other machine is gone."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options: dict[str, Any] = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 6}
    for name, value in options.items():
        if hasattr(socket, name):
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
