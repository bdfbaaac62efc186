"""`with network(4, "100 Mb/s", "1 ms") as net: net.run(4, "script.py")`: MPI over an emulated slow network."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeAlias

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.mpi import ONE_THREAD, ends_all, mpiexec
from lib_dlhpc.launch.network.switch import Link
from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.units import format_quantity, parse_quantity

KEEPER = "lib_dlhpc.launch.network.keeper"
ENTER = [sys.executable, "-I", str(Path(__file__).with_name("enter.py"))]
TCP = {  # MPICH: TCP messages between all ranks, through the laboratory's TUN devices
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "MPIR_CVAR_NOLOCAL": "1",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "net0",
    "HYDRA_LAUNCHER": "fork",  # here, also within a batch job
    "HYDRA_RMK": "user",
}
TUN = "/dev/net/tun"  # creates network devices whose other end is a file
MOST_RANKS = 64
SLOWEST, FASTEST = 1e4, 1.25e8  # B/s; limit of a switch in Python
LONGEST = 10.0  # s
PACKET, SMALLEST, LARGEST = 0.7e-3, 1500, 60_000  # s of one packet on its link; B
PATIENCE = 60.0  # s to set up or end the laboratory, on a busy machine

Ends: TypeAlias = int | tuple[int, int]
Values: TypeAlias = tuple[float | str, float | str]


class NetworkError(SpecError):
    """The network laboratory cannot be set up here; the text says why."""


@dataclass(frozen=True)
class Network:
    """A running network: bandwidth in B/s, latency in s; process `pid` holds it."""

    ranks: int
    bandwidth: float
    latency: float
    pid: int
    first: int  # descriptor in pid of rank 0's namespace

    def command(self, ranks: int, *arguments: str) -> list[str]:
        """Return the command that runs `python ARGUMENTS` on ranks in it. Raises SpecError for too many ranks."""
        if not 1 <= ranks <= self.ranks:
            raise SpecError(
                f"ranks = {ranks}: this network has {self.ranks}; expected 1 to {self.ranks}."
            )
        inside = [*ENTER, f"{self.pid}:{self.first}", sys.executable, *arguments]
        return [*ENTER, str(self.pid), mpiexec(), "-n", str(ranks), *inside]

    def environment(self, ranks: int = 1) -> dict[str, str]:
        """Return this process's environment, with MPI over TCP and one thread a rank, however many ranks."""
        return {**os.environ, **ONE_THREAD, **TCP}

    def run(
        self, ranks: int, *arguments: str, patience: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a Python program on ranks in it; return its completed process, with output as text.

        arguments: of Python: a file and its arguments, or "-m", a module ... An error of one rank aborts all, unless
        Python options come first. Raises SpecError for too many ranks or missing MPI, subprocess.TimeoutExpired after
        `patience` s.
        """
        return owned.run(
            self.command(ranks, *ends_all(arguments), *arguments),
            patience,
            text=True,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@contextmanager
def network(
    ranks: int,
    bandwidth: float | str,
    latency: float | str,
    links: Mapping[Ends, Values] | None = None,
) -> Iterator[Network]:
    """Set up a network of `ranks` ranks on one switch for the `with` block.

    bandwidth: of each rank's cable, each way, in B/s or as "100 Mb/s". latency: from rank to rank, in s
    or as "1 ms". links: (bandwidth, latency) of differing links: {2: ...} is rank 2's cable, {(0, 1): ...} the path
    from rank 0 to rank 1 through both cables. Raises SpecError for illegal values, NetworkError if this machine
    permits no such network.
    """
    cable = check(ranks, bandwidth, latency)
    cables, pairs = [cable] * ranks, []
    for ends, values in (links or {}).items():
        own = _link(values, f"links[{ends!r}].")
        both = (ends,) if isinstance(ends, int) else tuple(ends)
        known = all(isinstance(end, int) and 0 <= end < ranks for end in both)
        if not known or len(set(both)) != len(both) or len(both) not in (1, 2):
            raise SpecError(
                f"links: {ends!r} names no link; expected a rank, 0 to {ranks - 1}, or two of them."
            )
        if len(both) == 1:
            cables[both[0]] = own
        else:
            pairs.append([*both, own.bandwidth, own.latency])
    missing = unfit()
    if missing:
        raise NetworkError(missing)
    packet = int(min(max(PACKET * cable.bandwidth, SMALLEST), LARGEST))
    plan = {
        "links": [[link.bandwidth, link.latency] for link in cables],
        "pairs": pairs,
        "mtu": packet,
    }
    with _kept(plan) as (pid, first):
        yield Network(ranks, cable.bandwidth, cable.latency, pid, first)


def check(ranks: int, bandwidth: float | str, latency: float | str) -> Link:
    """Return the cable of each rank in SI units. Raises SpecError for an illegal network."""
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= MOST_RANKS:
        raise SpecError(f"ranks = {ranks!r}: expected a whole number, 1 to {MOST_RANKS}.")
    return _link((bandwidth, latency), "")


@cache
def available() -> str:
    """Return why the network laboratory cannot be set up here, in a sentence; "" if it can."""
    try:
        with network(1, FASTEST, 0.0):
            return ""
    except NetworkError as reason:
        return str(reason)


@cache
def unfit() -> str:
    """Return what this machine lacks, without trying to set up a network."""
    if not sys.platform.startswith("linux"):
        return "The network laboratory needs Linux, for its network namespaces."
    if not Path(TUN).exists():
        return f"The network laboratory needs {TUN}, which this machine or container lacks."
    try:
        version = subprocess.run(
            [mpiexec(), "--version"], capture_output=True, text=True, timeout=PATIENCE
        ).stdout
    except (SpecError, OSError, subprocess.TimeoutExpired) as error:
        return f"The network laboratory needs MPI: {error}"
    if "HYDRA" not in version or "ch3" in version or ("ch4:" in version and "ofi" not in version):
        return "The network laboratory needs MPICH 4 or later with libfabric, for MPI over TCP; `pip install mpich`."
    return ""


def _link(values: Values, field: str) -> Link:
    try:
        bandwidth, latency = values
    except (TypeError, ValueError):
        raise SpecError(f"{field.rstrip('.')}: expected (bandwidth, latency).") from None
    rate = parse_quantity(bandwidth, "B/s", f"{field}bandwidth")
    delay = parse_quantity(latency, "s", f"{field}latency")
    if not SLOWEST <= rate <= FASTEST:
        raise SpecError(
            f"{field}bandwidth = {bandwidth}: expected {_bits(SLOWEST)} to {_bits(FASTEST)}."
        )
    if not 0.0 <= delay <= LONGEST:
        raise SpecError(f"{field}latency = {latency}: expected 0 to {LONGEST:g} s.")
    return Link(rate, delay)


def _bits(rate: float) -> str:
    return format_quantity(8 * rate, "B/s").replace("B/s", "b/s")


@contextmanager
def _kept(plan: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Start the keeper, and end it afterwards; yield its pid and its first descriptor."""
    keeper = subprocess.Popen(
        [sys.executable, "-m", KEEPER, json.dumps(plan)],
        stdin=subprocess.PIPE,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **ONE_THREAD},
        start_new_session=True,
    )
    assert keeper.stdin and keeper.stdout and keeper.stderr
    try:
        report = _report(keeper.stdout)
        if "ready" not in report:
            last = (keeper.stderr.read().strip() or "no output").splitlines()[-1]
            raise NetworkError(
                f"The network laboratory cannot be set up here: {report.get('error', last)}. It needs"
                " network namespaces and /dev/net/tun, as root or with user namespaces."
            )
        yield report["pid"], report["ready"]
    finally:
        keeper.stdin.close()  # which ends it and every process inside
        try:
            keeper.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        keeper.stdout.close()
        keeper.stderr.close()


def _report(lines: IO[str]) -> dict[str, Any]:
    """Return the keeper's report once it is ready, or at the end of its output."""
    report: dict[str, Any] = {}
    for line in lines:
        report |= json.loads(line)
        if {"pid", "ready"} <= report.keys() or "error" in report:
            break
    return report
