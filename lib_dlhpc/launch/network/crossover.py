"""Allreduces in a network laboratory: measured and predicted times, and the sizes at which algorithms cross.

Two predictions: the textbook's, from the requested bandwidth and latency; and one from a ping-pong in the same
network, which includes TCP and the acknowledgements that senders wait for.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from subprocess import TimeoutExpired
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.launch.network.lab import Network, NetworkError, network
from lib_dlhpc.launch.network.lab import check as check_network
from lib_dlhpc.launch.network.model import Messages, crossing, fit, seconds
from lib_dlhpc.schedules import price, schedule
from lib_dlhpc.schedules.algorithms import COLLECTIVES
from lib_dlhpc.spec.units import format_quantity as show

WORKER = "lib_dlhpc.launch.network.worker"
ALGORITHMS = ("ring", "recursive_doubling", "rabenseifner")
SIZES = (4096, 32_768, 131_072, 524_288, 1_048_576)  # B
LARGEST = 2**26  # B
PATIENCE = 300.0  # s until the ranks are killed
FINE, CALLS = 60, 3  # sizes of the search for a predicted crossing; back-to-back calls
BUSY = 0.5  # load by other processes
WITHIN = 0.15  # acceptable error of a prediction


@dataclass(frozen=True)
class Row:
    """One algorithm at one size: s of a call, measured and predicted."""

    algorithm: str
    size: int  # B
    measured: float
    predicted: float  # from the ping-pong
    textbook: float  # from the requested bandwidth and latency

    @property
    def error(self) -> float:
        """Relative, of `predicted`."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Crossing:
    """The size, in B, from which an algorithm overtakes another; None: not within the measured sizes."""

    one: str
    other: str
    measured: float | None
    predicted: float | None
    textbook: float | None


@dataclass(frozen=True)
class Crossover:
    """The measurements in a network of `ranks` ranks; requested bandwidth in B/s, latency in s."""

    ranks: int
    bandwidth: float
    latency: float
    messages: Messages
    rows: tuple[Row, ...]
    crossings: tuple[Crossing, ...]
    load: float = 0.0  # load by other processes; 0 if the ranks had real-time priority

    def as_dict(self) -> dict[str, Any]:
        """Return all of it, in SI units."""
        return {
            **asdict(self),
            "messages": self.messages._asdict(),
            "rows": [asdict(row) | {"error": row.error} for row in self.rows],
        }

    def as_text(self) -> str:
        """Return a table and its summary."""
        found = self.messages
        lines = [
            f"{self.ranks} ranks, {8 * self.bandwidth / 1e6:g} Mb/s and {show(self.latency, 's')} from each to each",
            f"Ping-pong: {8 / found.beta / 1e6:.4g} Mb/s and {show(found.alpha, 's')} per message;"
            f" {show(found.short_alpha, 's')} up to {show(found.short, 'B')}, above which a sender waits"
            f" {show(found.acknowledgement, 's')} for the acknowledgement.",
            "",
            f"{'algorithm':<20}{'size':>10}{'measured':>12}{'predicted':>12}{'error':>8}{'textbook':>12}{'error':>8}",
        ]
        for row in self.rows:
            lines.append(
                f"{row.algorithm:<20}{_size(row.size):>10}{show(row.measured, 's'):>12}"
                f"{show(row.predicted, 's'):>12}{row.error:>+z8.0%}"
                f"{show(row.textbook, 's'):>12}{row.textbook / row.measured - 1:>+z8.0%}"
            )
        lines += ["", *(_crossing_text(each) for each in self.crossings), self._verdict()]
        if self.load > BUSY:
            lines.append(
                f"About {self.load:.1f} other processes used the cores: rerun when the machine is idle."
            )
        return "\n".join(lines)

    def _verdict(self) -> str:
        worst = max(self.rows, key=lambda row: abs(row.error))
        close = sum(abs(row.error) <= WITHIN for row in self.rows)
        return (
            f"{close} of {len(self.rows)} predictions are within {WITHIN:.0%};"
            f" worst: {worst.algorithm} at {_size(worst.size)}, {worst.error:+z.0%}."
        )


def check(
    ranks: int,
    bandwidth: float | str,
    latency: float | str,
    algorithms: Sequence[str],
    sizes: Sequence[int],
) -> None:
    """Raise SpecError for an illegal measurement."""
    check_network(ranks, bandwidth, latency)
    if ranks < 2:
        raise SpecError(f"ranks = {ranks}: expected at least 2.")
    known = COLLECTIVES["allreduce"]
    for name in algorithms:
        if name not in known:
            raise SpecError(listed(f"algorithms: {name}:", name, known, "expected some of"))
    if not algorithms or len(set(algorithms)) < len(algorithms):
        raise SpecError(f"algorithms: {', '.join(algorithms) or 'none'}: name each of them once.")
    for size in sizes:
        if size % 4 or not 4 <= size <= LARGEST:
            raise SpecError(f"sizes: {size} B: expected a multiple of 4 B, up to {_size(LARGEST)}.")
    if not sizes or list(sizes) != sorted(set(sizes)):
        raise SpecError("sizes: name at least one, each once, the smallest first.")


def measure(
    ranks: int,
    bandwidth: float | str,
    latency: float | str,
    algorithms: Sequence[str] = ALGORITHMS,
    sizes: Sequence[int] = SIZES,
    patience: float = PATIENCE,
) -> Crossover:
    """Set a network up, run allreduces of float32 in it, and predict them.

    sizes: of the buffer of each rank, in B, rising. Raises SpecError for illegal values, NetworkError if the network
    cannot be set up or the ranks do not finish within `patience` s.
    """
    check(ranks, bandwidth, latency, algorithms, sizes)
    with network(ranks, bandwidth, latency) as net:
        task = {"algorithms": list(algorithms), "sizes": list(sizes)}
        results = _run(net, task, patience)
    return predicted(results, net.bandwidth, net.latency)


def predicted(results: dict[str, Any], bandwidth: float, latency: float) -> Crossover:
    """Return the measured results with their predictions."""
    ranks, found = results["ranks"], fit(results["points"], results["gamma"])
    rows = []
    for each in results["rows"]:
        if not each["right"]:
            raise NetworkError(f"{each['algorithm']} at {each['size']} B gave a wrong sum.")
        plan = schedule(each["algorithm"], ranks, each["size"] // 4)
        rows.append(
            Row(
                *(each["algorithm"], each["size"], each["measured"]),
                seconds(plan, found, each["calls"]),
                price(plan, latency, 1 / bandwidth).total,
            )
        )
    names = tuple(dict.fromkeys(row.algorithm for row in rows))
    sizes = sorted({row.size for row in rows})
    fine = grid(sizes)
    crossings = []
    for one, other in combinations(names, 2):
        taken = [[row.measured for row in rows if row.algorithm == name] for name in (one, other)]
        ours = [by_ping_pong(name, ranks, fine, found) for name in (one, other)]
        books = [textbook(name, ranks, fine, bandwidth, latency) for name in (one, other)]
        where = crossing(sizes, *taken), crossing(fine, *ours), crossing(fine, *books)
        crossings.append(Crossing(one, other, *where))
    return Crossover(
        ranks, bandwidth, latency, found, tuple(rows), tuple(crossings), results.get("load", 0.0)
    )


def grid(sizes: Sequence[int], count: int = FINE) -> list[int]:
    """Return `count` sizes in B, from the first to the last of `sizes`, geometrically spaced."""
    elements = np.geomspace(sizes[0] // 4, sizes[-1] // 4, count).round().astype(int)
    return [4 * int(each) for each in np.unique(elements)]


def by_ping_pong(name: str, ranks: int, sizes: Sequence[int], found: Messages) -> list[float]:
    """Return the s of an algorithm at sizes in B, predicted from the ping-pong."""
    return [seconds(schedule(name, ranks, size // 4), found, CALLS) for size in sizes]


def textbook(
    name: str, ranks: int, sizes: Sequence[int], bandwidth: float, latency: float
) -> list[float]:
    """Return the s of an algorithm at sizes in B, from bandwidth in B/s and latency in s alone."""
    plans = [schedule(name, ranks, size // 4) for size in sizes]
    return [price(plan, latency, 1 / bandwidth).total for plan in plans]


def _run(net: Network, task: dict[str, Any], patience: float) -> dict[str, Any]:
    try:
        run = net.run(net.ranks, "-m", WORKER, json.dumps(task), patience=patience)
    except TimeoutExpired:
        raise NetworkError(f"The ranks did not finish in {patience:g} s.") from None
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if run.returncode or not lines:
        last = ((run.stderr or run.stdout).strip() or "no output").splitlines()[-1]
        raise NetworkError(f"The ranks ended with an error: {last}")
    results: dict[str, Any] = json.loads(lines[-1])
    if results["ranks"] != net.ranks:
        raise NetworkError(f"mpiexec started {results['ranks']} rank(s) instead of {net.ranks}.")
    return results


def _crossing_text(each: Crossing) -> str:
    pair = f"{each.one} and {each.other}"
    if each.measured is each.predicted is None:
        return f"{pair} do not cross between these sizes."
    sizes = [
        "not between these sizes" if size is None else f"at {_size(size)}"
        for size in (each.measured, each.predicted, each.textbook)
    ]
    return f"{pair} cross {sizes[0]}; predicted {sizes[1]}, by the textbook {sizes[2]}."


def _size(size: float) -> str:
    return f"{size / 1024:.3g} KiB" if size < 2**20 else f"{size / 2**20:.3g} MiB"
