"""What module 09 asks: the figures and the numbers of lesson.toml."""

from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.failures import interval, silent, spares, ways
from lib_dlhpc.explore.failures.charts import WAYS
from lib_dlhpc.explore.failures.interval import INTERVALS, found
from lib_dlhpc.explore.failures.interval import Setting as Run
from lib_dlhpc.explore.failures.live import EXAMPLE, expected, fail_here, mtbf_of
from lib_dlhpc.explore.failures.machine import Setting as Failing
from lib_dlhpc.explore.failures.spares import ELASTIC, WAIT, goodput_of
from lib_dlhpc.explore.failures.spares import Setting as Spared
from lib_dlhpc.explore.failures.versions import Versions, last_layer_bytes
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.failures.intervals import young
from lib_dlhpc.prediction.failures.resilience import Resilience
from lib_dlhpc.prediction.failures.spares import waiting
from lib_dlhpc.spec.units import DAY, HOUR, MINUTE
from lib_dlhpc.spec.units import format_quantity as show

STATE = ("weights", "master weights", "gradients", "optimizer state")


def lost(seconds: float) -> float:
    """Return the share of the time that is lost with a checkpoint every `seconds` s."""
    return 1 - float(found(Run(interval=seconds)).goodput)


def fast_files() -> dict[str, float]:
    """Return the shares of the time with the fastest file system at its best interval."""
    best = float(found(Run(rate=2e12)).best)
    return found(Run(rate=2e12, interval=best)).shares


def luck() -> str:
    """Say how far apart simulated runs are."""
    points = interval.simulated_points(Run())
    _, mean, low, high, _ = points[interval.FACTORS.index(1.0)]
    return f"At the best interval the mean loss is {mean:.1%}, and eight of ten runs lose {low:.1%} to {high:.1%}."


def checkfreq() -> str:
    """Return the shortest interval with less than 3.5% of checkpoints."""
    shares = ((s, found(Run(interval=s)).shares["checkpoints"]) for s in INTERVALS)
    return show(next(seconds for seconds, share in shares if share < 0.035), "s")


def saved(way: str, **changes: Any) -> Resilience:
    """Return the run that saves in one of the four ways."""
    return ways.found(ways.Setting(**changes), way)


def changed() -> str:
    """Return the largest changed share at which incremental saving is the best."""
    for share in sorted(ways.CHANGED, reverse=True):
        if max(WAYS, key=lambda way: float(saved(way, changed=share).goodput)) == "incremental":
            return f"{share:.0%}"
    return "None of these"


def waits(count: int) -> float:
    """Return the share of the time in which a run with `count` spares waits."""
    return waiting(spares.pool_of(Spared(spares=count)))


def elastic(**changes: Any) -> float:
    """Return the goodput with fewer replicas, without a spare unless `changes` has some."""
    return goodput_of(Spared(**{"spares": 0, **changes}), ELASTIC)


def state_on_a_gpu(zero: int) -> str:
    """Return the bytes of weights, gradients and optimizer state on a GPU; zero 1 shards over all replicas."""
    memory = predict(interval.experiment(Run()).set({"strategy.zero": zero})).memory
    return show(float(sum(memory[name] for name in STATE)), "B")


def root() -> float:
    """Return about the standard deviation of the number of nodes in repair."""
    return float(np.sqrt(spares.in_repair_of(Spared())))


def huge_spares() -> int:
    """Return the best number of spares of 131,072 GPUs, all of which the run needs."""
    return spares.best_spares(Spared(131072, spares=0), WAIT)


def checked(every: float | None = None, **changes: Any) -> float:
    """Return the share that is lost with a check after each `every` s; None: the best."""
    own = silent.found(silent.Setting(**changes))
    return 1 - own.goodput(own.best if every is None else every)


def costs() -> dict[str, float]:
    """Return what one silent error and one failure cost, alone and with what is done about them in advance; s each.

    between: of the run, from one error to the next, as errors strike in training.
    """
    own = silent.found(silent.Setting())
    lost = {name: float(share) for name, share in own.lost(own.best).items()}
    between = own.checks.mtbf / (1 - lost["all losses"])
    shares = found(Run(mtbf=silent.Setting().mtbf, interval=silent.INTERVAL)).shares
    error = lost["silent errors"] * between
    failure = float(shares["repeated work"] + shares["restarts"]) * own.mtbf
    saved = failure + float(shares["checkpoints"]) * own.mtbf
    checked = error + lost["checks"] * between
    return {
        "between": between,
        "error": error,
        "error_checked": checked,
        "failure": failure,
        "failure_saved": saved,
    }


def many_errors() -> str:
    """Say what stops 131,072 GPUs that are checked once a day, and how little the best interval loses."""
    huge = silent.Setting(131072)
    best = silent.found(huge).best
    lost = checked(best, gpus=131072)
    return f"{silent.checks_wall(huge)} With the best interval, {show(best, 's')}, {lost:.0%} of the time is lost."


def slow_gpu(draw: np.random.Generator) -> Drawn:
    """Return a slow GPU of one learner, and the minutes after which an exchange has paid."""
    own = {"gpus": int(draw.choice([1024, 2048, 4096])), "percent": int(draw.integers(3, 13))}
    own |= {"save": 10 * int(draw.integers(2, 13)), "restart": int(draw.integers(5, 21))}
    takes = own["save"] / 60 + own["restart"]
    pays = takes / (own["percent"] / 100)
    return own, pays, {"one_of_all": pays * own["gpus"], "of_itself": takes}


def time_limit(draw: np.random.Generator) -> Drawn:
    """Return a queue of one learner, and the percentage of the time that is training."""
    own = {"limit": int(draw.choice([6, 8, 12])), "queue": int(draw.integers(2, 6))}
    own |= {"restart": int(draw.integers(20, 41)), "save": int(draw.integers(3, 11))}
    trains = own["limit"] - (own["restart"] + own["save"]) / 60
    cycle = own["limit"] + own["queue"]
    wrong = {"no_queue": trains / own["limit"], "no_restart": own["limit"] / cycle}
    return own, 100 * trains / cycle, {name: 100 * share for name, share in wrong.items()}


def own_interval(draw: np.random.Generator) -> Drawn:
    """Return a machine of one learner, and Young's interval for it in minutes."""
    cost, nodes = 10 * int(draw.integers(1, 13)), 100 * int(draw.integers(2, 21))
    days = int(draw.choice([200, 250, 300, 365]))
    mtbf = days * DAY / nodes
    wrong = {"of_one_node": float(young(cost, days * DAY)), "half": float(young(cost / 2, mtbf))}
    own = {"nodes": nodes, "days": days, "cost": cost}
    minutes = {mistake: seconds / MINUTE for mistake, seconds in wrong.items()}
    return own, float(young(cost, mtbf)) / MINUTE, minutes


lesson = Lesson.read(
    __file__,
    outcomes={
        "best_interval": (lambda: found(Run()).best / MINUTE, interval.the_interval),
        "stall_of_a_copy": (lambda: saved("asynchronous").saving.blocked * 1e3, ways.four_ways),
        "spare_nodes": (lambda: spares.best_spares(Spared(), WAIT), spares.spares_or_fewer),
        "check_interval": (lambda: silent.found(silent.Setting()).best / HOUR, silent.the_checks),
        "last_layer": (lambda: last_layer_bytes() / 1e3, Versions),
        "killed_run": (lambda: expected(Failing(), EXAMPLE), fail_here),
    },
    numbers={
        "gpus": Run().gpus,
        "mtbf": lambda: found(Run()).mtbf / 3600,
        "young": lambda: found(Run()).young / MINUTE,
        "lost_5min": lambda: lost(5 * MINUTE),
        "lost_20min": lambda: lost(20 * MINUTE),
        "lost_3h": lambda: lost(3 * HOUR),
        "lost_day": lambda: lost(DAY),
        "checkfreq": checkfreq,
        "luck": luck,
        "least_of_512": lambda: 1 - found(Run(512)).best_goodput,
        "least_of_131072": lambda: 1 - found(Run(131072)).best_goodput,
        "fast_files_lost": lambda: 1 - fast_files()["training"],
        "fast_files_restarts": lambda: fast_files()["restarts"] / (1 - fast_files()["training"]),
        "frequent": lambda: interval.interval_wall(Run(131072, 30 * DAY)),
        "nodes": lambda: saved("synchronous").saving.size / saved("asynchronous").saving.host_copy,
        "state": lambda: saved("synchronous").saving.size / 1e12,
        "background": lambda: saved("asynchronous").saving.background,
        "again": lambda: saved("asynchronous").shares["repeated work"],
        "restarts": lambda: saved("asynchronous").shares["restarts"],
        "best_asynchronous": lambda: saved("asynchronous", interval=ways.BEST).goodput,
        "best_synchronous": lambda: saved("synchronous", interval=ways.BEST).goodput,
        "late": lambda: " ".join(ways.ways_walls(ways.Setting(rate=10e9, interval=300.0))),
        "first_node": lambda: ", ".join(
            f"{way} {saved(way, writers='first').goodput:.1%}" for way in WAYS
        ),
        "small_host": lambda: ways.ways_walls(ways.Setting("GPT, 1 T weights", memory=2e9))[0],
        "changed": changed,
        "in_repair": lambda: spares.in_repair_of(Spared()),
        "root": root,
        "roots": lambda: (
            (spares.best_spares(Spared(), WAIT) - spares.in_repair_of(Spared())) / root()
        ),
        "state_whole": lambda: state_on_a_gpu(0),
        "state_sharded": lambda: state_on_a_gpu(1),
        **{f"waits_{count}": lambda count=count: waits(count) for count in (0, 8, 16, 24)},
        "elastic_0": elastic,
        "large_0": lambda: elastic(replica=256),
        "large_16": lambda: elastic(replica=256, spares=16),
        "huge_spares": huge_spares,
        "huge_waits": lambda: goodput_of(Spared(131072, spares=huge_spares()), WAIT),
        "huge_elastic": lambda: elastic(gpus=131072),
        "huge_slow": lambda: elastic(gpus=131072, stall=10 * MINUTE),
        "quick_spares": lambda: spares.best_spares(Spared(repair=4 * HOUR), WAIT),
        "spare_nodes": lambda: spares.best_spares(Spared(), WAIT),
        "silent": lambda: silent.found(silent.Setting()).checks.mtbf / DAY,
        "takes": silent.Setting().takes / MINUTE,
        "checked_20min": lambda: checked(20 * MINUTE),
        "checked_6h": lambda: checked(6 * HOUR),
        "checked_day": lambda: checked(DAY),
        "checked_4days": lambda: checked(4 * DAY),
        "checked_best": checked,
        "often": lambda: show(silent.found(silent.Setting(takes=MINUTE)).best, "s"),
        "often_lost": lambda: checked(takes=MINUTE),
        "between_errors": lambda: costs()["between"] / DAY,
        "per_error": lambda: show(costs()["error"], "s"),
        "error_checked": lambda: show(costs()["error_checked"], "s"),
        "per_failure": lambda: show(costs()["failure"], "s"),
        "failure_saved": lambda: show(costs()["failure_saved"], "s"),
        "many_errors": many_errors,
        **{name: getattr(EXAMPLE, name) for name in ("startup", "seconds", "steps")},
        "every": Failing().every,
        "between": lambda: mtbf_of(Failing(), EXAMPLE),
    },
    draws={"own_interval": own_interval, "slow_gpu": slow_gpu, "time_limit": time_limit},
)
ask = lesson.ask
