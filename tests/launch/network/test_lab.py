"""A laboratory is there, then it is gone: no process, no namespace and no card stays, however it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from patience import eventually

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.network import NetworkError, available, lab, network

PATIENCE = 180  # s


@pytest.fixture(scope="module")
def here(require):
    reason = available()  # a network is set up to see whether it can be
    require(not reason, reason)


def cards():
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return sorted(line.split(":")[0].strip() for line in lines)


def namespaces(pid):
    """What a process is in, and what its descriptors hold."""
    found = set()
    for link in [*Path(f"/proc/{pid}/ns").iterdir(), *Path(f"/proc/{pid}/fd").iterdir()]:
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.startswith(("net:", "pid:", "user:")):
            found.add(target)
    return found


def of_nobody_else(found):
    return found - namespaces("self")


def holders(wanted):
    """The processes that are in a namespace of these, or hold one."""
    found = []
    for pid in psutil.pids():
        try:
            if namespaces(pid) & wanted:
                found.append(pid)
        except OSError:
            continue  # it has ended, or is another user's
    return found


def words(pid):
    """The command line of a process; none if it has ended meanwhile."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def wait_until_nobody(wanted):
    eventually(lambda: not holders(wanted), what=lambda: [words(p) for p in holders(wanted)])


def test_nothing_stays(here):
    before = cards()
    with network(3, "100 Mb/s", "1 ms") as net:
        assert cards() == before
        inside = of_nobody_else(namespaces(net.pid))
        # Of each rank, and one.
        assert len([each for each in inside if each.startswith("net:")]) == 4
        assert net.pid in holders(inside)
        # Lo, no card of the machine.
        assert Path(f"/proc/{net.pid}/net/dev").read_text().count(":") == 1
    assert not psutil.pid_exists(net.pid)
    assert holders(inside) == [] and cards() == before


def test_an_error_inside_also_removes_it(here):
    with pytest.raises(ZeroDivisionError), network(1, "100 Mb/s", 0) as net:
        inside = of_nobody_else(namespaces(net.pid))
        raise ZeroDivisionError
    assert not psutil.pid_exists(net.pid) and holders(inside) == []


HOLD = """
import subprocess, sys
from lib_dlhpc.launch.network import network
from lib_dlhpc.launch.network.lab import ENTER
with network(2, "100 Mb/s", "1 ms") as net:
    subprocess.Popen([*ENTER, str(net.pid), "sleep", "1000"])
    print(net.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_its_owner_is_killed_all_of_it_ends(here, how):
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    inside = of_nobody_else(namespaces(int(owner.stdout.readline())))
    deadline = time.monotonic() + PATIENCE
    while not any("sleep" in words(pid) for pid in holders(inside)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    owner.send_signal(how)
    owner.wait(PATIENCE)
    wait_until_nobody(inside)


@pytest.mark.parametrize("whom", ["keeper", "its parent"])
def test_when_the_keeper_is_killed_all_of_it_ends(here, whom):
    with network(2, "100 Mb/s", "1 ms") as net:
        inside = of_nobody_else(namespaces(net.pid))
        guest = subprocess.Popen([*lab.ENTER, str(net.pid), "sleep", "1000"])
        victim = net.pid if whom == "keeper" else psutil.Process(net.pid).ppid()
        os.kill(victim, signal.SIGKILL)
        assert guest.wait(PATIENCE) != 0
        wait_until_nobody(inside)


def test_a_command_inside_gives_its_status_and_output(here):
    with network(1, "100 Mb/s", 0) as net:
        inside = [*lab.ENTER, str(net.pid), sys.executable, "-c"]
        output = subprocess.run(
            [*inside, "import sys; print('hello'); sys.exit(7)"], capture_output=True, text=True
        )
        assert (output.returncode, output.stdout) == (7, "hello\n")
        killed = subprocess.run([*inside, "import os; os.kill(os.getpid(), 15)"])
        assert killed.returncode == 128 + 15
        missing = subprocess.run(
            [*lab.ENTER, str(net.pid), "no-such-program"], capture_output=True, text=True
        )
        assert missing.returncode == 127 and "no-such-program" in missing.stderr


def test_after_its_end_nothing_runs_in_it(here):
    with network(1, "100 Mb/s", 0) as net:
        words = [*lab.ENTER, str(net.pid), "true"]
    output = subprocess.run(words, capture_output=True, text=True)
    assert output.returncode == 127 and "Traceback" not in output.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0, "100 Mb/s", "1 ms"), "ranks = 0"),
        ((65, "100 Mb/s", "1 ms"), "1 to 64"),
        ((True, "100 Mb/s", "1 ms"), "ranks = True"),
        ((2, "fast", "1 ms"), "bandwidth"),
        ((2, "100 Gb/s", "1 ms"), "bandwidth"),
        ((2, 0, "1 ms"), "bandwidth"),
        ((2, float("nan"), "1 ms"), "bandwidth"),
        ((2, "100 Mb/s", "-1 ms"), "latency"),
        ((2, "100 Mb/s", "1 min"), "latency"),
        ((2, "100 Mb/s; touch x", "1 ms"), "bandwidth"),
        ((2, "100 Mb/s", "1 ms", {2: ("1 Mb/s", 0)}), "0 to 1"),
        ((2, "100 Mb/s", "1 ms", {(0, 0): ("1 Mb/s", 0)}), "(0, 0)"),
        ((2, "100 Mb/s", "1 ms", {(0, 1, 2): ("1 Mb/s", 0)}), "(0, 1, 2)"),
        ((2, "100 Mb/s", "1 ms", {"0": ("1 Mb/s", 0)}), "'0'"),
        ((2, "100 Mb/s", "1 ms", {0: "1 Mb/s"}), "links[0]"),
        ((2, "100 Mb/s", "1 ms", {0: ("1 Tb/s", 0)}), "links[0].bandwidth"),
    ],
)
def test_what_is_not_legal_is_named(arguments, named):
    with pytest.raises(SpecError) as output, network(*arguments):
        pass
    assert named in str(output.value) and not isinstance(output.value, NetworkError)


# Where the kernel grants no more namespaces: a limit that holds for this program and its children only.
REFUSED = """
import os
from pathlib import Path
from lib_dlhpc.launch.network.enter import NEW_USER, system
user, group = os.geteuid(), os.getegid()
system("unshare", NEW_USER)
Path("/proc/self/setgroups").write_text("deny")
Path("/proc/self/uid_map").write_text(f"0 {user} 1")
Path("/proc/self/gid_map").write_text(f"0 {group} 1")
Path("/proc/sys/user/max_net_namespaces").write_text("0")
from lib_dlhpc.launch.network import available
print(available())
"""


def test_where_it_is_not_permitted_it_reports_why(here):
    output = subprocess.run(
        [sys.executable, "-c", REFUSED],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **lab.ONE_THREAD},
    )
    assert output.returncode == 0, output.stderr
    assert "cannot be set up here" in output.stdout and "namespaces" in output.stdout
    assert output.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("missing", "named"),
    [("linux", "needs Linux"), ("tun", "container lacks"), ("mpi", "needs MPI"), ("ch3", "MPICH")],
)
def test_what_a_machine_lacks_is_named(missing, named, monkeypatch, tmp_path):
    if missing == "linux":
        monkeypatch.setattr(lab.sys, "platform", "darwin")
    elif not sys.platform.startswith("linux"):
        pytest.skip("needs Linux")
    elif missing == "tun":
        monkeypatch.setattr(lab, "TUN", str(tmp_path / "none"))
    else:
        monkeypatch.setattr(lab, "TUN", os.devnull)
        program = tmp_path / "mpiexec"
        program.write_text("#!/bin/sh\necho HYDRA --with-device=ch3:nemesis\n")
        program.chmod(0o755 if missing == "ch3" else 0o644)
        monkeypatch.setattr(lab, "mpiexec", lambda: str(program))
    assert named in lab.unfit.__wrapped__()


def test_the_keeper_reports_each_line_in_one_write():
    """Its parent process and its child share a pipe, and an unbuffered Python prints text and its end apart."""
    program = "from lib_dlhpc.launch.network.keeper import report; report({'ready': 200})"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # a write is a packet
    with ours, theirs:
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        subprocess.run([sys.executable, "-c", program], stdout=theirs, env=env, check=True)
        assert ours.recv(1000) == b'{"ready": 200}\n'
