"""A real Slurm with virtual nodes on loopback: python virtual_slurm.py FOLDER, until its standard input ends.

All daemons stay children of this process, in the foreground, so that it can end each of them by its id;
what they start and leave behind (a job's processes) comes to it as well. When the test run is killed, in
whatever way, the pipe that is this process's standard input ends, and so does all that it started.
It prints one line of JSON when jobs can be submitted: {"SLURM_CONF": PATH}.
"""

import getpass
import json
import os
import random
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

NODES, CORES = 4, 4
PATIENCE = 180  # s for all daemons to be up, on a busy machine
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
FIRST = 10_000  # port; below are those of other services

CONF = """
ClusterName=virtual
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=pmi2
ReturnToService=2
KillWait=2
MessageTimeout=100
TCPTimeout=60
BatchStartTimeout=180
SlurmdTimeout=0
UnkillableStepTimeout=600
OverTimeLimit=0
MinJobAge=3600
InactiveLimit=0
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=batch_sched_delay=0,sched_interval=1
{nodes}
PartitionName=virtual Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def main(folder: Path) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then end this
    _adopt()
    children: list[subprocess.Popen[bytes]] = []
    try:
        folder.mkdir(mode=0o700)
        children += start(folder)
        print(json.dumps({"SLURM_CONF": str(folder / "slurm.conf")}), flush=True)
        while not select.select([sys.stdin], [], [], 0.2)[0]:
            _reap(children)
    finally:
        stop(children)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def start(folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start munged, slurmctld and a slurmd a node, and wait until all nodes are idle."""
    host, user = socket.gethostname().split(".")[0], getpass.getuser()
    control, *ports = _free_ports(NODES + 1)
    names = [f"n{number}" for number in range(NODES)]
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CORES} State=UNKNOWN"
        for name, port in zip(names, ports, strict=True)
    )
    (folder / "state").mkdir()
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(folder=folder, host=host, user=user, control=control, nodes=nodes))
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    os.environ["SLURM_CONF"] = str(conf)
    at = {name: folder / f"munge.{name}" for name in ("socket", "log", "pid", "seed")}
    munged = [
        *["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={at['socket']}"],
        *[f"--log-file={at['log']}", f"--pid-file={at['pid']}", f"--seed-file={at['seed']}"],
    ]
    children = [_daemon(folder, munged)]
    _until(at["socket"].exists, children)
    children.append(_daemon(folder, ["slurmctld", "-D", "-c"]))
    children += [_daemon(folder, ["slurmd", "-D", "-N", name]) for name in names]
    _until(lambda: _idle() == NODES, children)
    return children


def stop(children: list[subprocess.Popen[bytes]]) -> None:
    """Kill the daemons and whatever runs in jobs: nobody wants to know how they would have ended."""
    until = time.monotonic() + PATIENCE
    while (left := _descendants(os.getpid())) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        _reap(children)


def _daemon(folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    program = shutil.which(command[0], path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    with open(folder / "daemons.log", "ab") as log:
        return subprocess.Popen(
            [program or command[0], *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _idle() -> int:
    """Return how many nodes can take a job; 0 without an answer."""
    asked = subprocess.run(
        ["sinfo", "-h", "-N", "-o", "%t"], capture_output=True, text=True, timeout=PATIENCE
    )
    return asked.stdout.split().count("idle")


def _until(holds, children) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        dead = [child.args for child in children if child.poll() is not None]
        if dead or time.monotonic() > until:
            raise RuntimeError(f"Slurm does not come up; ended: {dead}")
        time.sleep(0.05)


def _free_ports(number: int) -> list[int]:
    """Return free ports that no connection is given: one could have them before the daemons do."""
    given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    for port in random.sample(range(FIRST, given), given - FIRST):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == number:
            return found
    raise RuntimeError(f"{number} free ports between {FIRST} and {given}: found {len(found)}.")


def _adopt() -> None:
    """Become the parent of whatever the daemons' children leave behind (Linux)."""
    import ctypes

    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def _reap(children: list[subprocess.Popen[bytes]]) -> None:
    """Reap ended processes inherited by this one; daemons are reaped elsewhere."""
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            daemon = next((child for child in children if child.pid == ended.si_pid), None)
            if daemon is not None:
                daemon.wait()
            else:
                os.waitpid(ended.si_pid, 0)


def _descendants(root: int) -> list[int]:
    """The processes below one, without those that have ended and wait to be reaped."""
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                below.setdefault(int(parent), []).append(int(path.parent.name))
    found, todo = [], [root]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += children
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
