"""What module 10 asks: the figures and the numbers of lesson.toml."""

from typing import Any

import numpy as np

from lib_dlhpc.convergence import LAWS, verdict
from lib_dlhpc.costs import clock, peak_rate
from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.energy_planning import (
    best_size,
    budget,
    here,
    pipeline_slack,
    swings,
    to_accuracy,
)
from lib_dlhpc.explore.energy_planning.best_size import Setting as Size
from lib_dlhpc.explore.energy_planning.best_size import best, count, with_guess
from lib_dlhpc.explore.energy_planning.budget import Setting, layout, planned
from lib_dlhpc.explore.energy_planning.charts import hours, kilowatt_hours
from lib_dlhpc.explore.energy_planning.here import Setting as Here
from lib_dlhpc.explore.energy_planning.pipeline_slack import Setting as Pipe
from lib_dlhpc.explore.energy_planning.pipeline_slack import found
from lib_dlhpc.explore.energy_planning.planned_sizes import SLOW
from lib_dlhpc.explore.energy_planning.swings import CHECKPOINT, GWH
from lib_dlhpc.explore.energy_planning.swings import Setting as Power
from lib_dlhpc.explore.energy_planning.to_accuracy import LIMITS, cost, limit_words, runs
from lib_dlhpc.explore.energy_planning.to_accuracy import Setting as Run
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.prediction.validation.validate import validate
from lib_dlhpc.spec.units import KWH, YEAR
from lib_dlhpc.spec.units import format_quantity as show

FAST = "eight 200 Gb/s InfiniBand"


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


def least(**setting: Any) -> float:
    """Return the least loss of a budget, nats per token."""
    return float(best_size.found_sizes(Size(**setting)).loss.min())


def lost() -> float:
    """Return the part of what 512 GPUs gain over 64 in loss that a slow network loses."""
    fast = least(gpus=512)
    return (least(machine=SLOW, gpus=512) - fast) / (least() - fast)


def near() -> str:
    """Return the sizes within 0.01 nats of the best one."""
    low, high = best_size.found_sizes(Size()).near()
    return f"{count(low.weights)} to {count(high.weights)}"


def mfu_mpt() -> float:
    """Return the MFU that MPT 13B reached with llm-foundry on 32 H100."""
    (row,) = validate(["mpt"], only=["mpt-h100-13b-2048-32"])
    run = row.experiment
    assert run is not None
    flop = float(run.model.train_flop) / int(run.model.options["sequence"])
    return row.published * flop / float(peak_rate(run.machine.device, run.strategy.precision))


def ten_times() -> tuple[float, float]:
    """Return how many times the weights and the tokens ten times the compute is best spent on."""
    few, many = (LAWS["besiroglu"].split(compute) for compute in (1e21, 1e22))
    return many.weights / few.weights, many.tokens / few.tokens


def swing(**setting: Any) -> swings.Swing:
    """Return the power swings of 16,384 GPUs."""
    return swings.found(Power(**setting))


def floor_gwh() -> str:
    """Return what a floor of 95% takes in a year."""
    own = swing(floor=0.95)
    return f"{own.more * own.several.mean * YEAR / GWH:.0f} GWh"


def held(**setting: Any) -> str:
    """Return what a battery for nine tenths of the swing must hold."""
    return f"{swing(battery=0.9, **setting).held / KWH:.2f} kWh"


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
        "best_size": (lambda: count(best(Size()).weights), best_size.the_size),
        "free_joules": (lambda: 100 * found(Pipe()).saving, pipeline_slack.the_slack),
        "power_falls": (lambda: swing().plain.swing / 1e6, swings.the_swings),
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
        "best_tokens": lambda: best_size.tokens_of(Size()),
        "best_loss": least,
        "near": near,
        "largest_tokens": lambda: count(float(best_size.found_sizes(Size()).tokens[-1])),
        "guessed_size": lambda: count(with_guess(Size()).family[with_guess(Size()).best].weights),
        "mfu": lambda: best(Size()).utilization,
        "mfu_small": lambda: best_size.found_sizes(Size()).family[0].utilization,
        "mfu_large": lambda: best_size.found_sizes(Size()).family[-1].utilization,
        "mfu_mpt": mfu_mpt,
        "served_size": lambda: best_size.served_best(Size(served=1e12)),
        "mfu_512": lambda: best(Size(gpus=512)).utilization,
        "mfu_slow": lambda: best(Size(SLOW, 512)).utilization,
        "loss_512": lambda: least(gpus=512),
        "loss_slow": lambda: least(machine=SLOW, gpus=512),
        "lost": lost,
        "guessed_loss": lambda: float(with_guess(Size()).loss.min()),
        "beyond": lambda: best_size.size_view(Size(days=90)).wall.partition(". ")[0],
        "hoffmann_90": lambda: count(best(Size(days=90), "hoffmann").weights),
        "best_90": lambda: count(best(Size(days=90)).weights),
        "more_weights": lambda: ten_times()[0],
        "more_tokens": lambda: ten_times()[1],
        "saving": saving,
        "saving_gpipe": lambda: saving(schedule="gpipe"),
        "saving_32": lambda: saving(microbatches=32),
        "saving_2": lambda: saving(stages=2),
        "busy": lambda: pipeline_slack.busy(found(Pipe()), found(Pipe()).seconds),
        "busy_slowed": lambda: pipeline_slack.busy(found(Pipe()), found(Pipe()).stretched),
        "swing_high": lambda: show(float(swing().plain.watts.max()), "W"),
        "swing_period": lambda: show(swing().plain.period, "s"),
        "swing_wait": lambda: show(
            float(swings.step_of(Power().gpus, 1).terms["exposed communication"]), "s"
        ),
        "swing_long": lambda: show(swing(batch=4).plain.period, "s"),
        "floor_more": lambda: swing(floor=0.95).more,
        "floor_gwh": floor_gwh,
        "battery_more": lambda: swing(battery=0.9).more,
        "battery_held": held,
        "checkpoint_held": lambda: held(event=CHECKPOINT),
        "checkpoint_swing": lambda: show(swing(event=CHECKPOINT).plain.swing, "W"),
        "checkpoint_times": lambda: (
            swings.STALL / float(swings.step_of(Power().gpus, 1).terms["exposed communication"])
        ),
        "checkpoint_floor": lambda: swing(event=CHECKPOINT, floor=0.95).more,
        "jobs_swing": lambda: show(swing(jobs=8).smooth.swing, "W"),
        "more_epochs": lambda: here.more_epochs(Here()),
        "best_batch": lambda: min(here.BATCHES, key=lambda b: here.times_as_long(Here(other=b))),
        "one": Here().one,
        "other": Here().other,
    },
    draws={"own_limit": own_limit},
)
ask = lesson.ask
