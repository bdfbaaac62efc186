"""What module 02 asks: the figures and the numbers of lesson.toml."""

from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.data_parallel import here, live, race, scaling, sites, updates, waiting
from lib_dlhpc.explore.data_parallel.buckets import ALLREDUCES, bucket_count, one_step, step_of
from lib_dlhpc.explore.data_parallel.race import Race
from lib_dlhpc.explore.data_parallel.real import exchange_here
from lib_dlhpc.explore.data_parallel.waiting import Ranks
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.spec.units import format_quantity as show


def step(**choice: Any) -> Breakdown:
    """Return the prediction of a step of Goyal's run with other choices."""
    return predict(step_of(**choice))


def exposed(bucket: float) -> str:
    """Return how much of the allreduce is exposed."""
    return show(float(step(bucket=bucket).exposed_communication), "s")


def latency(bucket: float) -> str:
    """Say what a ring waits for latency."""
    ring = step(allreduce="ring", bucket=bucket)
    wait = show(float(ring.communication.latency), "s")
    return f"{bucket_count(ring.experiment)} buckets wait {wait} for it"


def first(setting: Race) -> str:
    """Say which way to train computes the most, and which learns first."""
    runs = race.courses(setting)
    most = max(runs, key=lambda name: runs[name].gradients)
    reached = min(runs, key=lambda name: runs[name].reached)
    both = "it is also" if most == reached else f"{reached} is"
    return (
        f"{most.capitalize()} computes the most gradients per second, {runs[most].gradients:.3g}; {both} the first"
        f" to reach a tenth of the loss, after {show(runs[reached].reached, 's')}."
    )


def diverges() -> str:
    """Say which way to train is the first to diverge as the learning rate grows."""
    for rate in race.RATES:
        runs = race.courses(Race(rate=rate))
        wild = [name for name, run in runs.items() if not run.loss[-1] < race.DIVERGED]
        if wild:
            return f"{' and '.join(wild)}, at {rate:g}: stale gradients tolerate only a lower learning rate."
    return "None of them."


def queued() -> str:
    """Return the gradients a second of sixteen workers and one server."""
    runs = race.courses(Race(workers=16, servers=1))
    return ", ".join(f"{name} {run.gradients:.3g}" for name, run in runs.items())


def fastest(allreduce: str) -> str:
    """Return the number of GPUs from which on strong scaling slows a run down."""
    curve = scaling.strong(scaling.Scaling(allreduce=allreduce))
    return f"{int(curve.gpus[np.argmax(curve.rate)]):,}"


def efficiency(draw: np.random.Generator) -> Drawn:
    """Return a step of one learner, and its efficiency in percent."""
    compute = 10 * int(draw.integers(10, 30))
    exchange, overlapped = 10 * int(draw.integers(6, 12)), int(draw.choice([50, 60, 75, 80]))
    wait = int(draw.integers(5, 20))
    own = {"compute": compute, "exchange": exchange, "overlapped": overlapped, "wait": wait}
    hidden = exchange * overlapped / 100
    wrong = {
        "all_exposed": 100 * compute / (compute + wait + exchange),
        "no_wait": 100 * compute / (compute + exchange - hidden),
        "hidden": 100 * compute / (compute + wait + hidden),
    }
    if overlapped == 50:
        del wrong["hidden"]
    return own, 100 * compute / (compute + wait + exchange - hidden), wrong


APART = {
    "wait_1": lambda: f"{sites.waits(sites.apart(1, '10 Gb/s')):.0%}",
    "per_step": lambda: sites.of_the_work(1, "10 Gb/s"),
    "per_step_100": lambda: sites.of_the_work(100, "10 Gb/s"),
    "wait_500": lambda: f"{sites.waits(sites.apart(500, '10 Gb/s')):.0%}",
    "wait_100": lambda: f"{sites.waits(sites.apart(100, '10 Gb/s')):.0%}",
    "step_1_1g": lambda: show(float(sites.apart(1, "1 Gb/s").step_time), "s"),
    "step_1_100g": lambda: show(float(sites.apart(1, "100 Gb/s").step_time), "s"),
    "holds_1": lambda: show(float(sites.apart(1, "10 Gb/s").memory_total), "B"),
    "holds_500": lambda: show(float(sites.apart(500, "10 Gb/s").memory_total), "B"),
    "learned_1": lambda: sites.accuracy(1),
    "learned_16": lambda: sites.accuracy(16),
    "learned_outer": lambda: sites.accuracy(16, tuple(sites.OUTER.values())),
}
lesson = Lesson.read(
    __file__,
    outcomes={
        "exposed": (lambda: float(step().exposed_communication) * 1e3, one_step),
        "straggler": (lambda: waiting.expected_wait(256, 0.03), waiting.the_slowest),
        "staleness": (lambda: updates.served().staleness.mean(), race.the_race),
        "far_sites": (lambda: 100 * sites.waits(sites.apart(100, "10 Gb/s")), sites.sites_table),
        "gain": (lambda: scaling.strong_gain(256, 2048), scaling.weak_and_strong),
        "many_or_one": (lambda: "one large bucket", exchange_here),
        "four_ranks": (lambda: live.times_as_fast(4), live.train_here),
    },
    numbers={
        "backward": lambda: f"{float(step().backward) * 1e3:.0f} ms",
        "backward_of_one": lambda: f"{float(step(images=1).backward) * 1e3:.0f} ms",
        "allreduce": lambda: f"{float(step().communication.total) * 1e3:.0f} ms",
        "exposed_4mb": lambda: exposed(4e6),
        "exposed_200mb": lambda: exposed(200e6),
        "latency_100kb": lambda: latency(100e3),
        "latency_25mb": lambda: latency(25e6),
        **{f"wait_{p}": lambda p=p: waiting.expected_wait(p, 0.03) for p in (16, 256, 2048)},
        "idle": lambda: waiting.waiting_share(Ranks(jitter=0.03, slow=2.0)),
        "idle_without": lambda: waiting.waiting_share(Ranks(jitter=0.0, slow=2.0)),
        "first": lambda: first(Race()),
        "first_of_unequal": lambda: first(Race(slow=4.0)),
        "diverges": diverges,
        "queued": queued,
        **{f"fastest_{name}": lambda name=name: fastest(name) for name in ALLREDUCES},
        "least": lambda: f"{int(scaling.strong(scaling.Scaling()).gpus[0]):,}",
        "most": lambda: f"{int(scaling.strong(scaling.Scaling()).gpus[-1]):,}",
        **APART,
        "buckets": lambda: len(here.sizes_of_a_step(here.BUCKETS[0])),
        "taken": lambda: 1 / scaling.strong_gain(256, 512),
    },
    draws={"efficiency": efficiency},
)
ask = lesson.ask
