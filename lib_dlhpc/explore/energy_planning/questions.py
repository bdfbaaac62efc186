"""What module 10 asks: the figures and the numbers of lesson.toml."""

from typing import Any

import numpy as np

from lib_dlhpc.convergence import verdict
from lib_dlhpc.costs import clock
from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.blocks.published import published_table
from lib_dlhpc.explore.energy_planning import budget, here, pipeline_slack, to_accuracy
from lib_dlhpc.explore.energy_planning.budget import KWH, Setting, layout, planned
from lib_dlhpc.explore.energy_planning.charts import hours, kilowatt_hours
from lib_dlhpc.explore.energy_planning.here import Setting as Here
from lib_dlhpc.explore.energy_planning.pipeline_slack import Setting as Pipe
from lib_dlhpc.explore.energy_planning.pipeline_slack import found
from lib_dlhpc.explore.energy_planning.to_accuracy import LIMITS, cost, limit_words, runs
from lib_dlhpc.explore.energy_planning.to_accuracy import Setting as Run
from lib_dlhpc.prediction.replays import replay

FAST = "eight 200 Gb/s InfiniBand"
PUBLISHED = {
    "goyal17-r50-1h": ("ResNet-50, 90 epochs on 256 P100", "{:.3g} {}"),
    "llama1-7b-mwh": ("LLaMA 7B: GPU-hours × 400 W × 1.1", "{:.3g} {}"),
    "llama1-65b-mwh": ("LLaMA 65B: the same", "{:.3g} {}"),
}


def named(name: str) -> Run:
    """Return the fastest run, the knee or the cheapest of the first figure."""
    return runs(Run().target).named[name]


def last_doubling() -> str:
    """Return what the last doubling of the GPUs costs and saves at the fastest end of the front."""
    most = named("fastest")
    fewer = most._replace(gpus=most.gpus // 2)
    saved, more = cost(fewer).seconds - cost(most).seconds, cost(most).joules - cost(fewer).joules
    return f"{hours(saved)} for {kilowatt_hours(more)} more"


def best_limit() -> str:
    """Return the power limit of Goyal's run that takes the fewest joules."""
    return limit_words(min(LIMITS, key=lambda limit: cost(Run(limit=limit)).joules))


def limited(limit: int) -> tuple[float, float]:
    """Return by which share a power limit lengthens Goyal's run, and what it saves of the joules."""
    plain, own = cost(Run()), cost(Run(limit=limit))
    return own.seconds / plain.seconds - 1, 1 - own.joules / plain.joules


def largest(target: float) -> str:
    """Return the largest batch that is known to meet a target."""
    return f"{max(each.batch for each in runs(target).settings):,}"


def fastest_plan(network: str) -> Any:
    """Return the fastest choice of a plan."""
    return planned(network).best


def nodes_on_front(network: str) -> str:
    """Return the numbers of GPUs on a front, from the fastest on."""
    found_ = dict.fromkeys(budget.gpus(choice) for choice in planned(network).front)
    return ", ".join(map(str, found_))


def gpt3_reason() -> str:
    """Return what the library says of GPT-3 at twice the batch, with a target that nobody measured."""
    file = replay("narayanan-2021").experiment.set({"run.target": budget.ASKED})
    return verdict(file.set({"strategy.batch": 2 * file.strategy.batch}), file).reason


def saving(**setting: Any) -> str:
    """Return what slack saves."""
    return f"{found(Pipe(**setting)).saving:.1%}"


def own_limit(draw: np.random.Generator) -> Drawn:
    """Return the GPU of one learner, and by how many percent a limit lengthens its arithmetic."""
    busy = int(draw.choice([250, 300, 400, 700]))
    idle, limit = busy // 10, busy * int(draw.integers(50, 80)) // 100
    static = idle + 0.3 * (busy - idle)
    own = {"busy": busy, "idle": idle, "limit": limit, "static": f"{static:g}"}
    same_share = static + (busy - static) * limit / busy  # of what is above the static power
    phi, plain = (float(clock(each, busy, idle)) for each in (limit, same_share))
    wrong = {
        "of_the_clock": 100 * (1 - phi),
        "linear": 100 * ((busy - static) / (limit - static) - 1),
        "no_static": 100 * (1 / plain - 1),
    }
    return own, 100 * (1 / phi - 1), wrong


lesson = Lesson.read(
    __file__,
    outcomes={
        "cheapest_energy": (lambda: cost(named("cheapest")).joules / KWH, to_accuracy.the_map),
        "fastest_gpus": (
            lambda: str(budget.gpus(fastest_plan(Setting().network))),
            budget.the_budget,
        ),
        "free_joules": (lambda: 100 * found(Pipe()).saving, pipeline_slack.the_slack),
        "two_batches": (lambda: here.times_as_long(Here()), here.two_plans),
    },
    numbers={
        "fast_time": lambda: hours(cost(named("fastest")).seconds),
        "fast_energy": lambda: kilowatt_hours(cost(named("fastest")).joules),
        "cheap_time": lambda: hours(cost(named("cheapest")).seconds),
        "cheap_gpus": lambda: named("cheapest").gpus,
        "last_doubling": last_doubling,
        "hosts": lambda: to_accuracy.by_cause(Run())["hosts, switches"] / cost(Run()).joules,
        "best_limit": best_limit,
        "longer_175": lambda: limited(175)[0],
        "saved_175": lambda: limited(175)[1],
        "lowest": lambda: f"{LIMITS[-1]} W",
        "longer_lowest": lambda: limited(LIMITS[-1])[0],
        "more_lowest": lambda: -limited(LIMITS[-1])[1],
        "largest_76": lambda: largest(0.76),
        "largest_764": lambda: largest(0.764),
        "largest_66": lambda: largest(0.66),
        "slow_fastest": lambda: layout(fastest_plan(Setting().network)),
        "slow_front": lambda: nodes_on_front(Setting().network),
        "fast_front": lambda: nodes_on_front(FAST),
        "slow_knee": lambda: layout(planned(Setting().network).knee),
        "first_change": lambda: planned(Setting().network).along_the_front[0],
        "nothing_gpt3": gpt3_reason,
        "refused": lambda: to_accuracy.wall_of(Run(batch=65536)).removeprefix("Accuracy: "),
        "saving": saving,
        "saving_gpipe": lambda: saving(schedule="gpipe"),
        "saving_32": lambda: saving(microbatches=32),
        "saving_2": lambda: saving(stages=2),
        "busy": lambda: pipeline_slack.busy(found(Pipe()), found(Pipe()).seconds),
        "busy_slowed": lambda: pipeline_slack.busy(found(Pipe()), found(Pipe()).stretched),
        "more_epochs": lambda: here.more_epochs(Here()),
        "best_batch": lambda: min(here.BATCHES, key=lambda b: here.times_as_long(Here(other=b))),
        "one": Here().one,
        "other": Here().other,
    },
    draws={"own_limit": own_limit},
    tables={"published": lambda: published_table(["goyal17", "definitions"], PUBLISHED)},
)
ask = lesson.ask
