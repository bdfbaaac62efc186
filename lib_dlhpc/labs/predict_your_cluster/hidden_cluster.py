"""A learner's hidden cluster: its parameters are secret, but it can be calibrated on two ranks, and run on.

machine_of(seed)                 the hidden machine; experiment_of(own, ...): a run on it
calibration(own, day)            points of messages and of products, as noisy as real ones
jobs_of(own)                     the networks that are run on it
simulated(own, job, ranks, nodes)  terms of a step, by the library's simulator
weeks(own, job, ranks, drift)    seven days' numbers of a machine that drifts, and a step on the eighth

Calibration shows nothing of the first three CAUSES, of which one is true of each machine. Runs do: waiting for the
latest rank on 2 ranks already, and more on 4 and 8; the other two where ranks share a node.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.spec.experiment import Experiment

SIZES = tuple(2**k for k in range(3, 23))  # B of a message
EDGES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # of square matrices
REPEATS = 9
NOISE = 0.02  # of a repeat
DISTURBED = 3  # of the repeats, at most, by other programs
SPOILT = 2  # sizes at which something disturbed all repeats
QUIET, BESIDE = 0.005, 0.01  # jitter of a calm machine; how a day's numbers differ from the next's
DAYS, WEEKS = 7, 400
MANY = 100  # days by which is known how far they lie apart
CALM, RESTLESS = (0.01, 0.03), (0.10, 0.16)  # drift from day to day
STEPS = 120
LAYOUTS = ((4, 2), (8, 4), (8, 2))  # ranks, nodes
TERMS = ("compute", "waiting", "communication")
NIC, JITTER, CONTENTION, ROUTES = "nic", "jitter", "contention", "routes"
CAUSES = {
    NIC: "the ranks of a node share its network interface",
    JITTER: "in each step, ranks are late at random, and all wait for the last one",
    CONTENTION: "the ranks of a node slow down each other's computation",
    ROUTES: "with more nodes, messages take longer routes",
}
Points = list[tuple[float, list[float]]]
Fit = dict[str, float]


class Job(NamedTuple):
    """A network in training. batch: samples of a step, all ranks together."""

    name: str
    widths: tuple[int, ...]
    batch: int

    @property
    def products(self) -> tuple[float, ...]:
        """FLOP of each product of matrices of a step: one a layer in forward, two in backward."""
        pairs = zip(self.widths, self.widths[1:], strict=False)
        return tuple(2.0 * a * b * self.batch for a, b in pairs for _ in range(3))

    @property
    def gradient(self) -> float:
        """B of all gradients, which travel as one message."""
        pairs = zip(self.widths, self.widths[1:], strict=False)
        return 4.0 * sum(a * b + b for a, b in pairs)


class Cluster(NamedTuple):
    """A hidden machine; s, s/B, B, s, FLOP/s, FLOP."""

    seed: int
    alpha: float
    beta: float
    step: float  # bytes from which on messages take `jump` longer
    jump: float
    rate: float
    half: float
    why: str
    much: float  # jitter, or by how much each further rank of a node slows computing

    @property
    def fit(self) -> Fit:
        """What a perfect calibration would measure."""
        names = ("alpha", "beta", "step", "jump", "rate", "half")
        return {name: float(getattr(self, name)) for name in names}


@cache
def machine_of(seed: int) -> Cluster:
    """Return a learner's own machine."""
    rng = np.random.default_rng([seed, 10])
    alpha, beta = 1e-6 * rng.uniform(20, 60), 1e-9 / rng.uniform(0.15, 0.5)
    step = float(2 ** rng.integers(14, 18))
    jump = rng.uniform(0.8, 1.4) * (alpha + step * beta)
    rate, half = 1e9 * rng.uniform(20, 40), 1e6 * rng.uniform(0.3, 2.0)
    why = (NIC, JITTER, CONTENTION)[int(rng.integers(3))]
    much = {NIC: 0.0, JITTER: rng.uniform(0.18, 0.26), CONTENTION: rng.uniform(0.25, 0.5)}[why]
    return Cluster(int(seed), alpha, beta, step, jump, rate, half, why, float(much))


def jobs_of(own: Cluster) -> tuple[Job, ...]:
    """Return four jobs: a small and a large one to look at, and two that are only checked."""
    rng = np.random.default_rng([own.seed, 11])
    small, large = (int(rng.choice(each)) for each in ((48, 56, 64), (448, 512, 576)))
    return (
        Job("small", (64, small, 10), 2048),
        Job("large", (256, large, 256, 10), 1024),
        Job("never shown, wide", (512, large, large, 10), 256),
        Job("never shown, narrow", (128, large // 2, 128, 10), 2048),
    )


def experiment_of(
    own: Cluster,
    job: Job,
    ranks: int,
    nodes: int,
    fit: Mapping[str, Any] | None = None,
    surprise: bool = True,
) -> Experiment:
    """Return a run. fit: in place of the machine's numbers; surprise: whether what two ranks do not show is there."""
    at, each = own.fit if fit is None else fit, ranks // nodes
    slowed = 1 + own.much * (each - 1) * (surprise and own.why == CONTENTION)
    shared = surprise and own.why == NIC
    jitter = (own.much if own.why == JITTER else QUIET) * surprise
    late = at["alpha"] + at["jump"] * (job.gradient >= at["step"])
    # Of the catalog's laptop no number may be left: it has an efficiency and a cost a call of its own.
    exact = {"efficiency": 1.0, "launch": 0.0, "overhead": 0.0}
    vast = {"memory": 1e12, "memory_bandwidth": 1e18}
    bare = Experiment(
        model={"family": "mlp", "widths": list(job.widths)},
        dataset="digits",
        machine={
            "name": "laptop",
            "nodes": nodes,
            "devices_per_node": each,
            "jitter": jitter,
            "progress": False,
            "nics": 1 if shared else each,
            "device": {"peak": {"fp32": 1e9}, "slowdown": slowed, **exact, **vast},
        },
        strategy={
            "nodes": nodes,
            "devices_per_node": each,
            "batch": job.batch // ranks,
            "allreduce": "recursive_doubling",
            "bucket": 1e12,
        },
    )
    machine = bare.machine
    # Ranks speak TCP within a node as well, so that one kind of link is all there is.
    link = replace(machine.intra_node, latency=late, bandwidth=1 / at["beta"], efficiency=1.0)
    device = replace(machine.device, peak={"fp32": at["rate"]}, half_work=at["half"])
    machine = replace(machine, device=device, intra_node=link, inter_node=link)
    return replace(bare, machine=machine)


def predicted_terms(
    own: Cluster, job: Job, ranks: int, fit: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the terms of a step without any surprise, by the library's closed form; fit may hold arrays."""
    return _three(predict(experiment_of(own, job, ranks, ranks, fit, surprise=False)).terms)


@cache
def simulated(own: Cluster, job: Job, ranks: int, nodes: int) -> dict[str, float]:
    """Return the terms of a step on the hidden machine: mean of many, every message simulated."""
    experiment = experiment_of(own, job, ranks, nodes)
    steps = STEPS if own.why == JITTER else STEPS // 4
    return _three(measure(experiment, simulate(experiment, "events", steps=steps)).terms)


def _three(terms: Mapping[str, Any]) -> dict[str, Any]:
    compute = terms["forward"] + terms["backward"] + terms["update"]
    return {
        "compute": compute,
        "waiting": terms["waiting for the slowest"],
        "communication": terms["exposed communication"],
    }


def message_seconds(fit: Mapping[str, Any], size: Any) -> Any:
    """Return the s of a message by its bytes."""
    return fit["alpha"] + fit["jump"] * (size >= fit["step"]) + fit["beta"] * size


def product_seconds(fit: Mapping[str, Any], flop: Any) -> Any:
    """Return the s of a product from its FLOP: half of the rate is reached at `half` (Hockney 1985)."""
    return (flop + fit["half"]) / fit["rate"]


def calibration(own: Cluster, day: int = 0) -> tuple[Points, Points]:
    """Return (B, s of each repeat) of messages between two ranks, and (FLOP, s of each) of products.

    The machine of day 0 is the one that is run on; on other days it is a little off.
    """
    rng = np.random.default_rng([own.seed, 12, day])
    link, device = np.exp(BESIDE * rng.standard_normal(2) * (day > 0))
    size, flop = np.array(SIZES, float), 2.0 * np.array(EDGES, float) ** 3
    return (
        _noisy(size, link * message_seconds(own.fit, size), rng, SIZES.index(int(own.step))),
        _noisy(flop, device * product_seconds(own.fit, flop), rng),
    )


def _noisy(
    sizes: NDArray[Any], seconds: NDArray[Any], rng: np.random.Generator, step: int = -9
) -> Points:
    """Return repeats: some were disturbed; at a few sizes all were, not at the ends and not beside a step."""
    times = seconds[:, None] * np.exp(NOISE * rng.standard_normal((len(sizes), REPEATS)))
    for row in times:
        disturbed = rng.choice(REPEATS, rng.integers(1, DISTURBED + 1), replace=False)
        row[disturbed] *= rng.uniform(1.5, 6.0, len(disturbed))
    places = [at for at in range(2, len(sizes) - 2, 2) if abs(at - step) > 1]
    for at in rng.choice(places, SPOILT, replace=False):
        times[at] *= rng.uniform(1.6, 2.5)
    return [(float(n), [float(t) for t in row]) for n, row in zip(sizes, times, strict=True)]


class Week(NamedTuple):
    """Numbers of seven days, and what a step takes on the eighth. wide: s, 90% of all days lie so far apart."""

    fits: list[Fit]
    step: float
    wide: float


def weeks(own: Cluster, job: Job, ranks: int, drift: tuple[float, float]) -> Iterator[Week]:
    """Yield weeks of a machine without surprises, whose numbers are others each day: it drifts that much."""
    rng = np.random.default_rng([own.seed, 13, ranks, round(1000 * drift[0])])
    spread = rng.uniform(*drift, WEEKS)[:, None, None]
    off = np.exp(spread * rng.standard_normal((WEEKS, DAYS + 1 + MANY, 3)))
    every = {key: np.full(off.shape[:2], value) for key, value in own.fit.items()}
    for name, of in (("alpha", 0), ("jump", 0), ("beta", 1), ("rate", 2)):
        every[name] = every[name] * off[..., of]
    steps = sum(predicted_terms(own, job, ranks, every).values())
    for week in range(WEEKS):
        fits = [{key: float(each[week, day]) for key, each in every.items()} for day in range(DAYS)]
        low, high = np.quantile(steps[week], (0.05, 0.95))
        yield Week(fits, float(steps[week, DAYS]), float(high - low))
