"""The process that holds a network laboratory: its namespaces, TUN devices and switch.

`python -m lib_dlhpc.launch.network.keeper PLAN` is started by lab.py. It prints one line of JSON, then works until its
standard input ends: its parent closes it or dies. It is process 1 of a PID namespace, so every process in the
laboratory ends with it.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, NoReturn

from lib_dlhpc.launch.network.enter import DEATH_SIGNAL, system
from lib_dlhpc.launch.network.namespaces import card, leave, new_network
from lib_dlhpc.launch.network.switch import Link, Ports, pass_on

FIRST = 200  # descriptor of rank 0's namespace; the others' follow
TIMER_SLACK = 29  # PR_SET_TIMERSLACK: tolerated delay of a wait, in ns


def address(rank: int) -> str:
    """Return the IPv4 address of a rank."""
    return f"10.77.0.{rank + 1}"


def main(plan: dict[str, Any]) -> NoReturn:
    """Create the namespaces, and hold them in a child that is process 1 of its PID namespace."""
    try:
        leave()
    except OSError as error:
        report({"error": f"a private network is not permitted here: {error.strerror}"})
        os._exit(1)
    child = os.fork()
    if not child:
        keep(plan)
    report({"pid": child})
    os.close(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    os.waitpid(child, 0)
    os._exit(0)


def keep(plan: dict[str, Any]) -> NoReturn:
    """Run the switch until standard input ends."""
    status = 0
    try:
        system("prctl", DEATH_SIGNAL, int(signal.SIGKILL))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans are reaped automatically
        links = [Link(*link) for link in plan["links"]]
        pairs = {(a, b): Link(*link) for a, b, *link in plan["pairs"]}
        home = new_network()
        cables = []
        for rank in range(len(links)):
            held = new_network()
            cables.append(card(address(rank), plan["mtu"]))
            os.dup2(held, FIRST + rank, inheritable=False)
            os.close(held)
        system("setns", home, 0)
        report({"ready": FIRST})
        with suppress(OSError):  # requires root: due packets must not wait for other processes
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
        system("prctl", TIMER_SLACK, 1)
        addresses = [socket.inet_aton(address(rank)) for rank in range(len(links))]
        pass_on(cables, addresses, Ports(links, pairs), 0)
    except OSError as error:
        report({"error": f"{error.filename or 'a network card'}: {error.strerror}"})
        status = 1
    os._exit(status)


def report(line: dict[str, Any]) -> None:
    """Print a line of JSON, in one write: parent and child share the pipe."""
    os.write(1, f"{json.dumps(line)}\n".encode())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
