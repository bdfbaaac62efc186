"""The failure machine on the page: a button, and a run that is killed until it is done, beside its prediction."""

from collections.abc import Callable
from typing import NamedTuple

from lib_dlhpc.costs import CheckpointCost
from lib_dlhpc.explore.blocks.panel import Panel, at_click
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.failures import machine
from lib_dlhpc.explore.failures.charts import phases_state
from lib_dlhpc.explore.failures.machine import Alone, Setting, Survived
from lib_dlhpc.prediction.failures.intervals import expected_cycle, young
from lib_dlhpc.sentences import sentences
from lib_dlhpc.simulation import FailureRuns, Phase, simulate_runs
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

say = sentences(__file__)

# A laptop's undisturbed run, rounded: what the question before the first click is about.
EXAMPLE = Alone(
    startup=1.0, seconds=3.0, ending=0.0, copying=0.002, steps=600, weights=b"", accuracy=0.0
)


class Outcome(NamedTuple):
    """The undisturbed run and the killed one."""

    setting: Setting
    alone: Alone
    own: Survived

    @property
    def simulated(self) -> FailureRuns:
        """The run in the simulator, with the failures of the real one."""
        alone, every = self.alone, interval_of(self.setting, self.alone)
        failures, begin = self.own.failures, alone.startup
        return simulate_runs(alone.seconds, every, price_of(alone), failures=failures, start=begin)

    @property
    def at_its_own_speed(self) -> "Outcome":
        """The same, predicted from the start and the steps/s of the killed run."""
        seconds = self.own.pace * self.alone.steps
        paced = self.alone._replace(startup=self.own.startup, seconds=seconds)
        return self._replace(alone=paced)

    @property
    def measured(self) -> dict[str, float]:
        """The time by phase, in s."""
        own = self.own
        again, ended = own.pace * sum(own.again), own.legs[-1].ended
        return {
            "first start": own.startup,
            "training": own.training - again,
            "repeated work": again,
            "restart": ended - own.startup - own.training,
            "end": own.wall - ended,
        }

    @property
    def predicted(self) -> dict[str, float]:
        """The time of the simulated run by phase, in s, by the names of the measured one."""
        parts = {name: float(seconds[0]) for name, seconds in self.simulated.seconds.items()}
        standing = parts.pop("checkpoint") + parts.pop("wait")
        parts["training"] += standing  # a copy is part of a step, as it is measured
        return {**parts, "end": self.alone.ending}


def asked_words(setting: Setting) -> str:
    """Say what a click would do."""
    own = machine.experiment(setting)
    steps = -(-own.dataset.samples * 8 // 10 // int(own.global_batch)) * int(own.run.epochs)
    often = "once" if setting.often == 1 else f"{setting.often:g} times"
    return (
        f"Some {round(steps, -2)} steps of a small network on digits, on {count(setting.ranks, 'rank')}; a snapshot"
        f" every {setting.every} steps. Ranks are killed with kill -9, {often} on average in the time of the"
        f" undisturbed run, at most {machine.MOST} times; mpiexec then ends the others, and the run is"
        " started again from its newest snapshot."
    )


@at_click(
    Setting(),
    asked_words,
    "Let it fail",
    "failures_phases",
    "Nothing has failed yet.",
    "Some ten to twenty seconds",
)
def fail_here(
    panel: Panel,
    setting: Setting,
    left_alone: Callable[..., Alone] = machine.undisturbed,
    survived: Callable[..., Survived] = machine.survive,
) -> None:
    """Look for what a failure costs here: repeated steps, or the restart?"""
    news: list[str] = []

    def report(words: str) -> None:
        news.append(words)
        panel.say("<br>".join(news))

    panel.say("First undisturbed, as the baseline ...")
    alone = left_alone(setting, panel.stop)
    report(f"Undisturbed it took {show(total_of(alone), 's')}. Now with failures ...")
    own = survived(setting, mtbf_of(setting, alone), panel.stop, report)
    outcome = Outcome(setting, alone, own)
    panel.show(phases_state(*rows_of(outcome)), result_html(outcome))
    panel.say("<br>".join([outcome_words(outcome), *news[1:]]))


def total_of(alone: Alone) -> float:
    """Return the s of the undisturbed run from its start until its ranks are gone."""
    return alone.startup + alone.seconds + alone.ending


def mtbf_of(setting: Setting, alone: Alone) -> float:
    """Return the mean s between two failures."""
    return (alone.startup + alone.seconds) / setting.often


def price_of(alone: Alone) -> CheckpointCost:
    """Return what a snapshot and a restart cost, as measured in the undisturbed run."""
    return CheckpointCost(float(len(alone.weights)), 0.0, alone.copying, restart=alone.startup)


def interval_of(setting: Setting, alone: Alone) -> float:
    """Return the s of training between two snapshots."""
    return setting.every * alone.seconds / alone.steps


def expected(setting: Setting, alone: Alone) -> float:
    """Return the s that such a run takes on average, without its end."""
    every = interval_of(setting, alone)
    cycle = float(expected_cycle(every, price_of(alone), mtbf_of(setting, alone)))
    return alone.startup + alone.seconds / every * cycle


def rows_of(outcome: Outcome) -> tuple[dict[str, list[Phase]], float]:
    """Return what the undisturbed run, the real one and the simulated one did, and the s to draw."""
    alone, own, run = outcome.alone, outcome.own, outcome.simulated
    whole = alone.startup + alone.seconds
    start = Phase("first start", 0.0, alone.startup, 0.0)
    undisturbed = [start, Phase("training", alone.startup, whole, 0.0)]
    rows = {"undisturbed": undisturbed, "measured": legs_of(own), "simulated": list(run.phases)}
    return rows, max(own.wall, float(run.wall[0]), whole)


def legs_of(own: Survived) -> list[Phase]:
    """Return what a run did that was killed."""
    phases: list[Phase] = []
    since, lost = 0.0, 0  # when the last leg ended, steps that are to be repeated
    for leg, again in zip(own.legs, [0, *own.again], strict=True):
        lost += again
        begun = leg.ended if leg.begun is None else leg.begun
        turn = min(begun + lost * own.pace, leg.ended)
        lost = 0 if turn < leg.ended else lost
        parts = [
            ("restart", since, begun),
            ("repeated work", begun, turn),
            ("training", turn, leg.ended),
        ]
        kept = [part for part in parts if part[2] > part[1]]
        phases += [Phase(*part, 0.0, leg.killed is None or part is not kept[-1]) for part in kept]
        since = leg.ended
    return phases


def outcome_words(outcome: Outcome) -> str:
    """Say how it ended: failures, time, and whether the weights are the same."""
    own, alone, parts = outcome.own, outcome.alone, outcome.measured
    same = own.weights == alone.weights
    bits = f"{'bitwise identical to' if same else 'not'} those of the undisturbed run"
    sign = "✓" if same else "✗"
    return (
        f"<b>{sign} After {count(len(own.failures), 'failure')} it is done, and its weights are {bits}.</b>"
        f" It took {show(own.wall, 's')}, undisturbed {show(total_of(alone), 's')}. Lost:"
        f" {show(parts['restart'], 's')} to restarts, {show(parts['repeated work'], 's')} to"
        f" {sum(own.again)} repeated steps. Accuracy {alone.accuracy:.1%}."
    )


def result_html(outcome: Outcome) -> str:
    """Return the time by phase, measured and simulated with the same failures, and why they differ."""
    ways = [outcome.predicted, outcome.at_its_own_speed.predicted, outcome.measured]
    for way in ways:
        way["all"] = sum(way.values())
    lines = [["time by phase", "predicted", "error", "at its own speed", "error", "measured"]]
    names = {"first start": "start", "restart": "restarts"}
    for name, seconds in ways[-1].items():
        line = [names.get(name, name)]
        for way in ways[:2]:
            error = f"{way[name] / seconds - 1:+z.0%}" if seconds > 0.005 else ""
            line += [show(way[name], "s"), error]
        lines.append([*line, show(seconds, "s")])
    return table_html(lines) + verdict_html(
        f"{say.why}<br>{advice(outcome.setting, outcome.alone)}"
    )


def advice(setting: Setting, alone: Alone) -> str:
    """Say how long such a run takes on average, and how often to save."""
    mean, every = expected(setting, alone) + alone.ending, interval_of(setting, alone)
    best = float(young(alone.copying, mtbf_of(setting, alone)))
    often = show(best, "s") if best > alone.seconds / alone.steps else "one after each step"
    return (
        f"<b>On average</b> such a run takes {show(mean, 's')} by the formula, if failures never end. A snapshot"
        f" every {show(every, 's')} of training stalled it for {show(alone.copying, 's')}: by Young's formula"
        f" {often} would be best."
    )
