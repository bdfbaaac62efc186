"""A learner's traces: training steps with a slow rank, and programs of neighbors with a late rank or a slow link.

steps_of(seed, hidden)      training steps: machine, network, strategy and slow rank are drawn
runs_of(seed, hidden)       programs of ranks with two neighbors each: one rank is late, or one link slow
step_trace, run_trace       their simulated Timelines
again(run, work, share)     the Timeline of a run with other work and another share of its slow link
events_of(timeline)         what a learner's function is given: a list of Events
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.simulation import program, ring, simulate, simulate_neighbors
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.machine import Machine, load_machine
from lib_dlhpc.timeline import Event, Timeline

MACHINES = ("lassen", "perlmutter", "summit", "abci", "jeanzay")
MODELS = {"resnet50": 32, "vgg16": 16}  # samples of a rank
DEVICES = 4
LAYOUTS = ((4, 1), (2, 2))  # nodes, devices in a node
STRATEGIES: dict[str, dict[str, int]] = {
    "data parallelism": {"data": DEVICES},
    "ZeRO 3": {"data": DEVICES, "zero": 3},
    "a pipeline of two stages": {"data": 2, "pipeline": 2, "microbatches": 4},
}
SHOWN_MESSAGES = 24  # rows of a training step that are messages in flight

STEPS, WORK, READ, SCATTER = 5, 0.030, 0.002, 0.01  # s of a step; s; of the work
FIRST = 2 / 3  # of the work: what a rank does before its messages
LATE = ("sends late", "reads slowly", "computes longer")
SLOW = "slow link"
SIZE, NETWORKS = 2e6, (5e9, 10e9, 25e9)  # B of a message; bit/s


class Step(NamedTuple):
    """Two training steps on four devices. slow: the rank that computes at `speed` times the rate of the others."""

    machine: str
    layout: tuple[int, int]
    model: str
    strategy: str
    slow: int
    speed: float
    seed: int

    @property
    def words(self) -> str:
        """The step in words."""
        nodes, each = self.layout
        return f"{self.model}, {self.strategy}, {nodes} nodes of {self.machine} with {each} device{'s' * (each > 1)}"


class Run(NamedTuple):
    """A program of neighbors and its problem. late: s a step, of the rank or of what its link to the next one adds."""

    problem: str
    ranks: int
    rank: int
    late: float
    network: float
    seed: int

    @property
    def words(self) -> str:
        """The run in words, without its problem."""
        return f"{self.ranks} ranks in a ring, {self.network / 1e9:g} Gbit/s"


def steps_of(seed: int, hidden: bool = False) -> tuple[Step, ...]:
    """Return a learner's training steps: each strategy once, and one more that is hidden."""
    rng = np.random.default_rng([seed, 13, hidden])
    names = list(STRATEGIES)
    chosen = [names[int(rng.integers(2))]] if hidden else names
    return tuple(_step(rng, strategy) for strategy in chosen)


def _step(rng: np.random.Generator, strategy: str) -> Step:
    return Step(
        str(rng.choice(MACHINES)),
        LAYOUTS[int(rng.integers(len(LAYOUTS)))],
        str(rng.choice(list(MODELS))),
        strategy,
        int(rng.integers(DEVICES)),
        float(rng.choice([0.75, 0.8, 0.85])),
        int(rng.integers(1000)),
    )


def runs_of(seed: int, hidden: bool = False) -> tuple[Run, ...]:
    """Return a learner's programs: a rank that is late before its messages, one late behind them, and a slow link.

    Hidden are a second late sender and a second slow link.
    """
    rng = np.random.default_rng([seed, 31, hidden])
    before = LATE[int(rng.integers(2))]
    problems = (before, SLOW) if hidden else (before, LATE[2], SLOW)
    return tuple(_run(rng, problem) for problem in problems)


def _run(rng: np.random.Generator, problem: str) -> Run:
    ranks = int(rng.integers(4, 7))
    late = float(WORK * rng.uniform(0.4, 0.8))
    network = float(rng.choice(NETWORKS))
    return Run(problem, ranks, int(rng.integers(ranks)), late, network, int(rng.integers(1000)))


@lru_cache(maxsize=32)
def step_trace(step: Step) -> Timeline:
    """Return the simulated training steps."""
    nodes, each = step.layout
    strategy = {"nodes": nodes, "devices_per_node": each, "batch": DEVICES * MODELS[step.model]}
    tables = {
        "model": {"name": step.model},
        "dataset": {"name": "imagenet"},
        "machine": {"name": step.machine},
        "strategy": strategy | STRATEGIES[step.strategy],
    }
    speed = np.ones(DEVICES)
    speed[step.slow] = step.speed
    found = simulate(
        read_experiment(tables), "events", step.seed, steps=2, speed=speed, messages=SHOWN_MESSAGES
    )
    return found.sorted()


def run_trace(run: Run) -> Timeline:
    """Return the simulated program."""
    return again(run, (1.0,) * run.ranks, share_of(run))


@lru_cache(maxsize=128)
def again(run: Run, work: tuple[float, ...], share: float) -> Timeline:
    """Return the program whose ranks take `work` times as long between their calls, with that share of the one link."""
    before, after, reading = _seconds(run)
    factor = np.array(work)
    what = program(STEPS, run.ranks, before * factor, after * factor, reading * factor, SIZE)
    slow = run.rank if share < 1 else -1
    return simulate_neighbors(what, ring(_machine(run), run.ranks, slow, share))


def _seconds(run: Run) -> tuple[Floats, Floats, Floats]:
    """Return what each rank works before its messages and behind them, and reads, s: (STEPS, ranks)."""
    drawn = np.random.default_rng(run.seed).normal(1.0, SCATTER, (2, STEPS, run.ranks))
    before, after = FIRST * WORK * drawn[0], (1 - FIRST) * WORK * drawn[1]
    reading = np.full(before.shape, READ)
    late = run.late * (np.arange(run.ranks) == run.rank)
    if run.problem == "sends late":
        # All do the same work; the late rank does this part before it sends, the others after.
        return before + late, after + run.late - late, reading
    if run.problem == "reads slowly":
        return before, after, reading + late
    if run.problem == "computes longer":
        return before, after + late, reading
    return before, after, reading


def share_of(run: Run) -> float:
    """Return which share of a link's bandwidth the slow link has; 1 where there is none."""
    if run.problem != SLOW:
        return 1.0
    return 1 / (1 + run.late * run.network / (8 * SIZE))


@lru_cache(maxsize=32)
def _machine(run: Run) -> Machine:
    laptop = load_machine("laptop")
    link = replace(laptop.inter_node, bandwidth=run.network / 8)
    return replace(laptop, nodes=run.ranks, inter_node=link)


@lru_cache(maxsize=64)
def flights(run: Run, share: float) -> tuple[tuple[float, ...], ...]:
    """Return how long a message from one rank to another is in flight, s, (ranks, ranks); 0: they send none."""
    slow = run.rank if share < 1 else -1
    equal = program(1, run.ranks, WORK, WORK, 0.0, SIZE)
    trace = simulate_neighbors(equal, ring(_machine(run), run.ranks, slow, share))
    rows = list(trace)
    sent = {each.match: each.start for each in rows if each.kind == "send"}
    came = {(x.peer, x.rank): x.stop - sent[x.match] for x in rows if x.kind == "receive"}
    link = {(run.rank, (run.rank + 1) % run.ranks)} if share < 1 else set()
    link |= {(b, a) for a, b in link}
    usual = min(came.values())
    # A receive of another link may have begun after its message had come.
    return tuple(
        tuple(
            (came[min(link)] if (a, b) in link else usual) if (a, b) in came else 0.0
            for b in range(run.ranks)
        )
        for a in range(run.ranks)
    )


def events_of(timeline: Timeline) -> list[Event]:
    """Return the rows as Events, by rank and start: what a learner's functions are given."""
    return list(timeline)
