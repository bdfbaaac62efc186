"""A learner's long run on a machine that fails: what it is expected to take, and how it saves.

task_of(seed)                          machine and run of a learner; experiment_of(own, ...): as an experiment
time_finding, interval_finding         whether a learner's formulas are those of prediction/failures/intervals.py
simulated_finding                      the same compared with simulated runs with random failures
best(own)                              the highest goodput that keeps to the limits, over ways and intervals
choice_findings(choice, own)           whether a learner's [run] is legal, keeps to the limits, and is near that
"""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.costs.checkpoints import CheckpointCost, saving
from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.findings import Finding, broken, kept, later
from lib_dlhpc.labs.formula_cases import CLOSE, Case, compared, value_of
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.prediction.failures.intervals import (
    best_interval,
    daly_first_order,
    expected_cycle,
    goodput,
    system_mtbf,
    young,
)
from lib_dlhpc.sentences import sentences
from lib_dlhpc.simulation.failures import simulate_runs
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import DAY, HOUR
from lib_dlhpc.spec.units import format_quantity as show_quantity

say = sentences(__file__)

WAYS = ("synchronous", "asynchronous", "multilevel", "incremental")
FIELDS = ("checkpoint", "checkpoint_interval")
DAYS = 30  # of training
MARGIN = 0.01  # below the best goodput
RUNS = 1500
ERRORS = 4  # standard errors of a mean
TIME = "Your formula: the expected time of a run"
INTERVAL = "Your formula: the interval that costs the least"
SIMULATED = f"{RUNS} simulated runs take as long as your formula gives"
LEGAL = "The choice is legal"
LIMITS = "It stays within the limits on bytes written and on a node's memory"
GOODPUT = f"Target: within {MARGIN:.0%} of the best goodput"


class SurviveTask(NamedTuple):
    """A learner's machine and run; s, B and B/s."""

    seed: int
    nodes: int
    node_mtbf: float
    restart: float
    layers: int
    shared: float  # of the shared file system
    local: float  # of the disk in a node
    survival: float  # share of failures that leave it intact
    changed: float  # share of the state that an incremental checkpoint writes
    every: float  # s between two full checkpoints that the limit of bytes allows
    room: float  # B of a node's memory that are free


@cache
def task_of(seed: int) -> SurviveTask:
    """Return a learner's own task."""
    rng = np.random.default_rng([seed, 8])

    def one(*values: float) -> float:
        return float(rng.choice(values))

    return SurviveTask(
        seed,
        int(one(128, 256)),
        one(300, 500, 800) * HOUR,
        one(240, 420, 600),
        int(one(48, 64, 80)),
        one(8e9, 16e9, 40e9),
        one(0.5e9, 1e9, 2e9),
        one(0.3, 0.6, 0.85),
        one(0.15, 0.25, 0.4),
        one(400, 800, 1600),
        one(1e9, 64e9, 64e9),
    )


def experiment_of(own: SurviveTask, way: str = "synchronous", interval: Any = HOUR) -> Experiment:
    """Return the learner's run. Raises SpecError."""
    run = {"checkpoint": way, "checkpoint_interval": interval, "changed": own.changed}
    shared = {"bandwidth": own.shared, "write_bandwidth": own.shared, "scope": "shared"}
    disk = {"bandwidth": 2 * own.local, "write_bandwidth": own.local, "scope": "node"}
    return Experiment(
        model={
            "family": "gpt",
            "layers": own.layers,
            "hidden": 8192,
            "heads": 64,
            "sequence": 2048,
            "vocabulary": 51200,
        },
        dataset="webtext",
        machine={
            "name": "selene",
            "jitter": 0.0,
            "nodes": own.nodes,
            "node_mtbf": own.node_mtbf,
            "restart_time": own.restart,
            "local_survival": own.survival,
            "host_memory": own.room,
            "storage": {"shared": shared, "disk": disk | {"capacity": 4e12}},
        },
        strategy={
            "nodes": own.nodes,
            "tensor": 8,
            "pipeline": 8,
            "batch": 64,
            "microbatches": 64,
            "precision": "bf16",
            "optimizer": "adam",
            "recompute": "full",
            "sequence_parallel": True,
            "zero": 1,
        },
        storage={"tier": "shared", "local": "disk"},
        run=run | {"checkpoint_writers": "all"},
    )


def mtbf_of(own: SurviveTask) -> float:
    """Return the s between failures of all nodes."""
    return float(system_mtbf(own.node_mtbf, own.nodes))


def written(own: SurviveTask, price: CheckpointCost, interval: float) -> float:
    """Return the B that a run writes, without checkpoints that are repeated after a failure."""
    return DAYS * DAY / interval * float(price.written)


def limit(own: SurviveTask) -> float:
    """Return the B that a run may write."""
    return DAYS * DAY / own.every * float(saving(experiment_of(own)).size)


def goodput_of(own: SurviveTask, way: str, interval: float) -> float:
    """Return the share of the time of a long run that becomes training."""
    return float(goodput(interval, saving(experiment_of(own, way)), mtbf_of(own)))


@cache
def best(own: SurviveTask) -> tuple[float, str, float]:
    """Return (goodput, way, interval) of the best choice that keeps to the limits.

    Goodput rises up to best_interval and falls after it, so that each way has its best at that interval, or
    at the shortest that the limit of bytes allows.
    """
    found = []
    for way in WAYS:
        price = saving(experiment_of(own, way))
        if price.host_copy <= own.room:
            least = written(own, price, 1.0) / limit(own)
            interval = max(float(best_interval(price, mtbf_of(own))), least)
            found.append((goodput_of(own, way, interval), way, interval))
    return max(found)


def time_finding(expected_time: Callable[..., Any], own: SurviveTask) -> Finding:
    """Return whether `expected_time(interval, work, save, restart, node_mtbf, nodes)` is Daly's complete model."""
    table = (
        ("Almost no failures", 3600.0, 240.0, 300.0, 1e9, 1),
        ("One node", 1800.0, 120.0, 0.0, 4 * HOUR, 1),
        ("Several nodes", 1800.0, 120.0, 0.0, 64 * HOUR, 16),
        ("With a restart", 1800.0, 120.0, 900.0, 64 * HOUR, 16),
        ("On your machine", 2000.0, _price(own).blocked, own.restart, own.node_mtbf, own.nodes),
        ("Many failures", 3000.0, 600.0, 1500.0, 100 * HOUR, 100),
    )
    cases = []
    for about, interval, save, restart, node, nodes in table:
        interval, work, mtbf = float(interval), 50.0 * interval, float(node) / nodes
        save = float(save)
        price = CheckpointCost(0.0, 0.0, save, restart=restart)
        right = 50 * float(expected_cycle(interval, price, mtbf))
        slips = _time_slips(interval, price, float(node), mtbf)
        near = [(words, float(wrong)) for words, wrong in slips if abs(wrong / right - 1) > CLOSE]
        given = (interval, work, save, restart, float(node), nodes)
        cases.append(Case(about, given, right, near, say.about_seconds))
    return compared(TIME, expected_time, cases, say.seconds_done)


def _time_slips(
    interval: float, price: CheckpointCost, node_mtbf: float, mtbf: float
) -> list[tuple[str, Any]]:
    """Return what classic mistakes give for the time of 50 intervals."""
    save, restart = price.blocked, price.restart
    right = 50 * float(expected_cycle(interval, price, mtbf))
    plain, grows = interval + save, np.expm1((interval + save) / mtbf)
    half = plain * (1 + (plain / 2 + restart) / mtbf)
    return [
        (say.one_node, 50 * float(expected_cycle(interval, price, node_mtbf))),
        (say.no_failures, 50 * plain),
        (say.no_restart, 50 * mtbf * grows),
        (say.restart_fails, 50 * (mtbf + restart) * grows),
        (say.restart_always, 50 * mtbf * np.expm1((plain + restart) / mtbf)),
        (say.half_interval, 50 * half),
        (say.save_fails, 50 * (np.exp(restart / mtbf) * mtbf * np.expm1(interval / mtbf) + save)),
        (say.no_save, 50 * mtbf * np.exp(restart / mtbf) * np.expm1(interval / mtbf)),
        (say.one_interval, right / 50),
        (say.whole_run, mtbf * np.exp(restart / mtbf) * np.expm1(min(50 * plain / mtbf, 600.0))),
        (say.half_interval, 50 * plain * (1 + (interval / 2 + restart) / mtbf)),
        ("Seconds, please.", right / HOUR),
    ]


def interval_finding(interval: Callable[..., Any], own: SurviveTask) -> Finding:
    """Return whether `best_interval(save, restart, node_mtbf, nodes)` has the lowest expected time."""
    table = (
        ("One node", 10.0, 300.0, 30 * HOUR, 1),
        ("Many nodes", 10.0, 300.0, 3000 * HOUR, 1000),
        ("On your machine", _price(own).blocked, own.restart, own.node_mtbf, own.nodes),
        ("A long restart", 60.0, 3600.0, 400 * HOUR, 100),
        ("Saving takes long", 720.0, 300.0, 200 * HOUR, 100),
    )
    cases = []
    for about, save, restart, node, nodes in table:
        save, mtbf = float(save), float(node) / nodes
        right = float(best_interval(CheckpointCost(0.0, 0.0, save, restart=restart), mtbf))
        words = say.first_order
        slips = [
            (say.node_mtbf, float(young(save, float(node)))),
            (say.node_mtbf, float(best_interval(CheckpointCost(0.0, 0.0, save), float(node)))),
            (
                f"That is Young's formula, for saves that take almost no time. {words}",
                float(young(save, mtbf)),
            ),
            (say.restart_counted, float(daly_first_order(save, mtbf, restart))),
            (
                f"That is the first order, for saves that take almost no time. {words}",
                float(daly_first_order(save, mtbf)),
            ),
            (say.whole_lost, float(young(save, mtbf) / np.sqrt(2))),
            (say.save_counted, right + save),
        ]
        near = [(words, wrong) for words, wrong in slips if abs(wrong / right - 1) > CLOSE]
        cases.append(Case(about, (save, restart, float(node), nodes), right, near, words))
    return compared(INTERVAL, interval, cases, say.interval_done)


def simulated_finding(
    expected_time: Callable[..., Any], interval: Callable[..., Any], own: SurviveTask
) -> Finding:
    """Return whether runs with random failures take what the formula says, at the interval, half of it and twice it."""
    price, mtbf = _price(own), mtbf_of(own)
    machine = (float(price.blocked), own.restart, own.node_mtbf, own.nodes)
    words = []
    try:
        middle = value_of(interval, *machine)
        if not 1 <= middle <= 10 * mtbf:
            raise LabError(f"An interval of {middle:.4g} s cannot be simulated here.")
        for factor in (0.5, 1, 2):
            every = factor * middle
            formula = value_of(expected_time, every, 40 * every, *machine)
            plain = CheckpointCost(0.0, 0.0, machine[0], restart=own.restart)
            wall = simulate_runs(40 * every, every, plain, mtbf, runs=RUNS, seed=own.seed).wall
            mean, error = float(wall.mean()), float(wall.std() / np.sqrt(RUNS))
            if not abs(formula - mean) <= ERRORS * error:
                return broken(
                    SIMULATED,
                    f"An interval of {every:.0f} s: a simulated run takes {mean:,.0f} s (+- {error:,.0f} s),"
                    f" and your formula gives {formula:,.0f} s.",
                )
            words.append(f"{mean / every / 40:.3f}")
    except LabError as error:
        return broken(SIMULATED, str(error))
    return kept(
        SIMULATED,
        "Seconds per second of training, at half your interval, at yours, and at twice yours:"
        f" {', '.join(words)}.",
    )


def formula_findings(
    expected_time: Callable[..., Any], interval: Callable[..., Any], own: SurviveTask
) -> list[Finding]:
    """Return what holds for both formulas."""
    first, second = time_finding(expected_time, own), interval_finding(interval, own)
    if not (first.right and second.right):
        return [first, second, later(SIMULATED)]
    return [first, second, simulated_finding(expected_time, interval, own)]


def chosen(choice: Callable[[], str], own: SurviveTask) -> Experiment:
    """Return the run that a learner's text stands for. Raises SpecError, LabError."""
    try:
        tables = tomllib.loads(choice())
    except Exception as error:
        raise LabError(
            f"choice() returns a [run] as TOML. {type(error).__name__}: {error}"
        ) from None
    given = tables.get("run", {})
    if not isinstance(given, dict):
        raise LabError(say.no_table)
    extra = sorted({*tables} - {"run"}) + sorted({*given} - {*FIELDS})
    if extra:
        raise LabError(f"{', '.join(extra)}: fixed by the task; you may set: {', '.join(FIELDS)}.")
    interval = given.get("checkpoint_interval", 0)
    if not isinstance(interval, int | float | str):
        raise LabError(say.no_time)
    experiment = experiment_of(own, given.get("checkpoint", "synchronous"), interval)
    if not 0 < experiment.run.checkpoint_interval <= DAYS * DAY:
        raise LabError(say.out_of_range)
    return experiment


def choice_findings(choice: Callable[[], str], own: SurviveTask) -> list[Finding]:
    """Return whether the choice is legal, keeps to the limits, and is near the best."""
    try:
        experiment = chosen(choice, own)
    except (SpecError, LabError) as error:
        return [broken(LEGAL, str(error)), later(LIMITS), later(GOODPUT)]
    way, interval = experiment.run.checkpoint, float(experiment.run.checkpoint_interval)
    price, mtbf = saving(experiment), mtbf_of(own)
    legal = kept(LEGAL, f"{way}, every {interval:,.0f} s of training.")
    much, most = written(own, price, interval), limit(own)
    amounts = f"{show_quantity(much, 'B')} of {show_quantity(most, 'B')} are written"
    over = []
    if much > most * (1 + 1e-9):
        over.append(f"{amounts}. What writes less: a different interval, or a different method?")
    if price.host_copy > own.room:
        over.append(
            f"While training continues, the copy that is being written takes"
            f" {show_quantity(float(price.host_copy), 'B')} of a node's memory, but only"
            f" {show_quantity(own.room, 'B')} are free."
        )
    if over:
        return [legal, broken(LIMITS, " ".join(over)), later(GOODPUT)]
    limits = kept(LIMITS, f"{amounts}.")
    cycle = float(expected_cycle(interval, price, mtbf))
    share, still = interval / cycle, float(price.standstill(interval)) / cycle
    quick = replace(price, restart=0.0, local_restart=0.0)
    restarts = 1 - float(expected_cycle(interval, quick, mtbf)) / cycle
    words = (
        f"{share:.2%} of the time is useful training; the best found is {best(own)[0]:.2%}. Saving stalls the run for"
        f" {still:.2%} of the time, restarts take {restarts:.2%}, and work repeated after failures"
        f" {1 - share - still - restarts:.2%}."
    )
    if share < (1 - MARGIN) * best(own)[0]:
        ask = (
            " Stalls or repeated work: which of the two is larger, and what makes it smaller? If "
            "both are about equal, a different interval helps little; would a different method?"
        )
        return [legal, limits, broken(GOODPUT, words + ask)]
    return [legal, limits, kept(GOODPUT, words)]


def _price(own: SurviveTask) -> CheckpointCost:
    """Return what a synchronous checkpoint costs the learner's machine."""
    return saving(experiment_of(own))
