"""What module 09 asks, in its order: guesses that uncover experiments, things to try, checks."""

from typing import Any

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import Column, Table
from lib_dlhpc.explore.blocks.question import Card
from lib_dlhpc.explore.failures import interval, ways
from lib_dlhpc.explore.failures.charts import WAYS
from lib_dlhpc.explore.failures.interval import Setting, found, the_interval
from lib_dlhpc.explore.failures.live import EXAMPLE, expected, fail_here, mtbf_of
from lib_dlhpc.explore.failures.machine import Setting as Failing
from lib_dlhpc.explore.failures.versions import last_layer_bytes, versions_here
from lib_dlhpc.explore.failures.ways import Setting as Saved
from lib_dlhpc.explore.failures.ways import found as saved
from lib_dlhpc.explore.failures.ways import four_ways
from lib_dlhpc.prediction.intervals import young
from lib_dlhpc.spec.units import format_quantity as show

lesson = Lesson()


def best_interval() -> Card:
    """Ask for the interval that loses the least."""
    run = found(Setting())
    return lesson.predict(
        f"{Setting().gpus:,} GPUs. One checkpoint takes a minute, and the MTBF of the machine is {run.mtbf / 3600:.0f}"
        " hours. Which checkpoint interval, in minutes of training, loses the least?",
        result=run.best / 60,
        unit="min",
        explanation="Young: the square root of twice the minute times the three hours. Off by a factor of three,"
        " checkpoints and lost work together cost two thirds more.",
        then=the_interval(),
    )


def stall_of_a_copy() -> Card:
    """Ask how long an asynchronous checkpoint stalls training."""
    copy, write = saved(Saved(), "asynchronous").saving, saved(Saved(), "synchronous").saving
    return lesson.predict(
        f"Each of {write.size / copy.host_copy:,.0f} nodes has its shard of {write.size / 1e12:.1f} TB, and its 8 GPUs"
        f" copy it to the host at once. It is written in the background, which takes {copy.background:.0f} s as before."
        " For how many milliseconds does training stall?",
        result=copy.blocked * 1e3,
        unit="ms",
        explanation="A GPU has a few hundred megabytes of it, and a host link of some fifty gigabytes a second.",
        then=four_ways(),
    )


def last_layer() -> Card:
    """Ask how much a version of the last layer writes, and train."""
    return lesson.predict(
        "A network of 85 thousand weights, 340 kB, has five versions. You continue from the newest and train only its"
        " last"
        " layer, which classifies ten digits. How many kB does the next version write?",
        result=last_layer_bytes() / 1e3,
        unit="kB",
        explanation="256 inputs and 10 outputs: the weights and biases of that layer. All others are stored already.",
        then=versions_here(),
    )


def killed_run() -> Card:
    """Ask how long a killed run takes, and kill it."""
    every = Failing()
    return lesson.predict(
        f"Undisturbed, a small run takes {EXAMPLE.startup:.0f} s to start and {EXAMPLE.seconds:.0f} s for"
        f" {EXAMPLE.steps} steps, with a snapshot every {every.every}. A rank is killed every"
        f" {mtbf_of(every, EXAMPLE):.0f} s on average. How many seconds does the run take, by the formula?",
        result=lambda: expected(every, EXAMPLE),
        unit="s",
        explanation="Each failure costs a restart, which may fail as well, and the steps since the last snapshot. The"
        " weights are bitwise identical: a version holds all state that the next step depends on.",
        then=fail_here(),
    )


def safe_side() -> Card:
    """Check what frequent checkpoints cost."""
    return lesson.choose(
        "A checkpoint takes a minute. Saving after every two minutes of training, 'to be on the safe side', ...",
        {
            "loses almost nothing to a failure, so it is the best": "To failures, yes. But a third of all time is"
            " saving.",
            "loses a third of the time, failure or not": "Yes: C over tau plus C. As often as it pays, not as you can.",
            "loses as much as saving every six hours": "With a failure in three hours, it makes hardly any progress.",
        },
        right="loses a third of the time, failure or not",
    )


def stall() -> Card:
    """Check how long training must stop."""
    return lesson.choose(
        "Writing a checkpoint takes a minute. For how long does training have to stop?",
        {
            "A minute: the state must not change meanwhile": "The state may change: a copy of it is written.",
            "As long as a copy to the host takes": "Yes, if the host has room, and the write is done in time.",
            "Not at all": "Nearly. But an update must not overtake the copy.",
        },
        right="As long as a copy to the host takes",
    )


def rare() -> Card:
    """Check how rare failures are."""
    return lesson.choose(
        "A GPU fails once in six years. You train for a month on 4,096 of them. Failures ...",
        {
            "are rare, so ignore them": "For one GPU. Of 4,096, one fails every thirteen hours.",
            "occur some fifty times: save, and automate the restart": "Yes: 4,096 months are 57 times six years.",
            "are certain only if the GPUs are old": "Their rates add up, old or not.",
        },
        right="occur some fifty times: save, and automate the restart",
    )


def diverged() -> Card:
    """Check what helps against a diverged state."""
    return lesson.choose(
        "After 20,000 steps the loss diverges, and the newest checkpoint holds the diverged state. What would have"
        " helped?",
        {
            "Saving more often": "Then the newest good one would be overwritten as well, by the next save.",
            "Keeping versions, and continuing from an earlier one": "Yes: with another rate, on its own branch.",
            "Saving synchronously": "It would have stored the same bad state, more slowly.",
        },
        right="Keeping versions, and continuing from an earlier one",
    )


def own_interval(seed: int | None = None) -> Card:
    """Ask each learner for Young's interval of a machine of their own."""
    draw = np.random.default_rng(seed)
    cost, nodes = 10 * int(draw.integers(1, 13)), 100 * int(draw.integers(2, 21))
    days = int(draw.choice([200, 250, 300, 365]))
    mtbf = days * interval.DAY / nodes
    return lesson.compute(
        f"{nodes:,} nodes, each of which fails once in {days} days; a checkpoint takes {cost} s. What is Young's"
        " interval, in minutes?",
        answer=float(young(cost, mtbf)) / interval.MINUTE,
        unit="min",
        hint="First the time between two failures of all nodes together, in seconds; then the root of 2 C M.",
    )


def try_intervals() -> Column:
    """List things to try with the interval."""

    def lost(seconds: float) -> str:
        return f"{1 - float(found(Setting(interval=seconds)).goodput):.1%}"

    def best(**changes: Any) -> str:
        return f"{1 - float(found(Setting(**changes)).best_goodput):.1%}"

    def checkpoints() -> str:
        at = next(
            i
            for i in interval.INTERVALS
            if float(found(Setting(interval=i)).shares["checkpoints"]) < 0.035
        )
        return show(at, "s")

    def spread() -> str:
        points = interval.simulated_points(Setting())
        _, mean, low, high, _ = points[interval.FACTORS.index(1.0)]
        return f"At the best interval the mean loss is {mean:.1%}, and eight of ten runs lose {low:.1%} to {high:.1%}."

    def restarts() -> str:
        run = found(Setting(rate=2e12))
        run = found(Setting(rate=2e12, interval=float(run.best)))
        share = float(run.shares["restarts"]) / (1 - float(run.goodput))
        return (
            f"{1 - float(run.goodput):.1%}, {share:.0%} of it restarts: then a faster restart is worth more than a"
            " faster file system."
        )

    return lesson.steps(
        (
            "Take 5 minutes, then 20, 3 hours, a day. How much is lost?",
            lambda: (
                f"{lost(300)}, {lost(1200)}, {lost(10800)}, {lost(86400)}: first mostly to checkpoints, then to"
                f" repeated"
                " work."
            ),
        ),
        (
            "CheckFreq keeps the falling line below 3.5 %. From which interval on is it below that here?",
            lambda: f"From {checkpoints()} on.",
        ),
        ("Simulate the runs. How far apart are lucky and unlucky ones?", spread),
        (
            "Take 512 GPUs, and 131,072, each with its best interval. What grows with the machine?",
            lambda: (
                f"The loss, from {best(gpus=512)} to {best(gpus=131072)}: each node is as reliable as before, but the"
                " failure rates of all add up, and restarts dominate."
            ),
        ),
        ("Take a file system that writes 2 TB/s. How much is lost at the best interval?", restarts),
        (
            "Take nodes that fail once in 30 days, on 131,072 GPUs. Which wall is that?",
            lambda: interval.interval_wall(Setting(gpus=131072, mtbf=30 * interval.DAY)),
        ),
    )


def try_ways() -> Column:
    """List things to try with the four ways to save."""

    def goodput(way: str, **changes: Any) -> str:
        return f"{float(saved(Saved(**changes), way).goodput):.1%}"

    def each(**changes: Any) -> str:
        return ", ".join(f"{way} {goodput(way, **changes)}" for way in WAYS)

    def changed() -> str:
        for share in sorted(ways.CHANGED, reverse=True):
            values = {way: float(saved(Saved(changed=share), way).goodput) for way in WAYS}
            if max(values, key=lambda way: values[way]) == "incremental":
                return f"{share:.0%}"
        return "None of these"

    def rest() -> str:
        shares = saved(Saved(), "asynchronous").shares
        return (
            f"Repeated work, {float(shares['repeated work']):.1%}, and restarts, {float(shares['restarts']):.1%}: the"
            " interval is as long as before."
        )

    return lesson.steps(
        (
            "At 20 minutes training hardly stalls, and yet less than half of the loss is gone. What is the rest?",
            rest,
        ),
        (
            "Choose each its best. What does a cheap checkpoint buy?",
            lambda: (
                f"A short interval: {goodput('asynchronous', interval=ways.BEST)} goodput asynchronously, against"
                f" {goodput('synchronous', interval=ways.BEST)} synchronously."
            ),
        ),
        (
            "Take a file system that writes 10 GB/s, and 5 minutes. What waits now, and for what?",
            lambda: " ".join(ways.ways_walls(Saved(rate=10e9, interval=300.0))),
        ),
        (
            "Let the first node write, at 20 minutes. Why is it worse for all methods but one?",
            lambda: (
                f"{each(writers='first')}. Its copies, drives and hashing take the whole state; a synchronous write is"
                " limited by the file system, not by the node."
            ),
        ),
        (
            "Take 1 T weights, with 2 GB for copies. Which wall is that?",
            lambda: ways.ways_walls(Saved(model="GPT, 1 T weights", memory=2e9))[0],
        ),
        (
            "At 20 minutes again, how small must the changed fraction be until incremental is the best?",
            lambda: (
                f"{changed()}. Adam changes every weight in every step; frozen layers and embeddings of rare tokens do"
                " not change."
            ),
        ),
    )


def try_versions() -> Column:
    """List things to try with versions."""
    return lesson.steps(
        (
            "Train four epochs, then one epoch of the last layer. What is shared?",
            "All layers but the last: the version writes only what changed.",
        ),
        (
            "Take rate 2 and train. Then click the version that you want back, and continue from there.",
            "Training diverges, to some 10 % accuracy; the tree has a branch now, and the good versions are still"
            " there.",
        ),
        (
            "Compare two versions of different branches. Which tensor differs most?",
            "See the last table: shared tensors are stored once, the others have their relative difference.",
        ),
        (
            "Why does one epoch of all layers share nothing with the one before?",
            "Each step changes each weight, so no chunk has the same hash.",
        ),
    )


def try_failures() -> Column:
    """List things to try with the killed run."""
    return lesson.steps(
        (
            "Let it fail with the defaults. Do repeated steps cost most here, or restarts?",
            "Restarts: the interpreter, MPI and the data take about a second each time.",
        ),
        (
            "Take a snapshot every 200 steps, with the same seed. What grows?",
            "The repeated steps, up to 200 for each failure.",
        ),
        (
            "Take four failures in the time of the run. When does a restart fail as well?",
            "When the next failure comes within its second: then nothing was gained by it.",
        ),
        (
            "Which line does the simulation predict well, which not, and why?",
            "From the undisturbed speed restarts are off, since ranks share the cores; at its own speed most lines"
            " agree.",
        ),
    )


def published() -> Table:
    """Return what was published beside its prediction."""
    return interval.published_table()


def surprises() -> ipywidgets.HTML:
    """Return all guesses beside the results."""
    return lesson.surprises()
