"""The failure machine on the page: a button, and a run that is killed until it is done, beside its prediction.

fail_here()    the experiment: controls, measured and simulated phases, and the time that was lost
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

import ipywidgets

from lib_dlhpc.costs.checkpoints import Saving
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.live_run import ranks_in_words
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.explore.blocks.workbench import slider, verdict_html, workbench
from lib_dlhpc.explore.failures.charts import phases_state
from lib_dlhpc.explore.failures.machine import (
    MOST,
    Alone,
    Setting,
    Survived,
    experiment,
    survive,
    undisturbed,
)
from lib_dlhpc.prediction.intervals import expected_cycle, young
from lib_dlhpc.simulation.failures import FailureRuns, Phase, simulate_runs
from lib_dlhpc.spec.units import format_quantity as show

OFTEN, EVERY, RANKS = (0.5, 1.0, 2.0, 4.0), (10, 50, 100, 200), (1, 2)
SEEDS = (24, 6, 8, 18, 7)  # whose first failures come soon
# A laptop's undisturbed run, rounded: what the question before the first click is about.
EXAMPLE = Alone(
    startup=1.0, seconds=3.0, ending=0.0, copying=0.002, steps=600, weights=b"", accuracy=0.0
)


class Outcome(NamedTuple):
    """The undisturbed run and the killed one."""

    alone: Alone
    own: Survived


def fail_here(
    left_alone: Callable[..., Alone] = undisturbed,
    survived: Callable[..., Survived] = survive,
    thread: Thread = threading.Thread,
) -> ipywidgets.Box:
    """Return controls, a button that starts it, and the outcome."""
    controls = {
        "often": slider(
            "Failures",
            "On average, in the time of the undisturbed run",
            [(f"{n:g}", n) for n in OFTEN],
            2.0,
        ),
        "every": slider(
            "Snapshot", "Steps from one to the next", [(f"{n} steps", n) for n in EVERY], 50
        ),
        "ranks": slider("Ranks", "Each batch is split over them", [(str(n), n) for n in RANKS], 2),
        "seed": slider(
            "Seed",
            "Other moments, other ranks",
            [(str(n), seed) for n, seed in enumerate(SEEDS, 1)],
            SEEDS[0],
        ),
    }
    asked = ipywidgets.HTML()
    phases, result, below = chart("failures_phases"), ipywidgets.HTML(), ipywidgets.VBox([])

    def chosen() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def ask() -> None:
        asked.value = verdict_html(asked_words(chosen()))

    def work(runner: Runner) -> None:
        setting, news = chosen(), []

        def report(words: str) -> None:
            news.append(words)
            runner.say("<br>".join(news))

        report("First undisturbed, as the baseline ...")
        alone = left_alone(setting, runner.stop)
        news.clear()
        report(f"Undisturbed it took {show(total_of(alone), 's')}. Now with failures ...")
        own = survived(setting, mtbf_of(setting, alone), runner.stop, report)
        outcome = Outcome(alone, own)
        phases.update(*phases_state(*rows_of(setting, outcome)))
        result.value = result_html(setting, outcome)
        below.children = (phases, result)
        runner.say("<br>".join([outcome_words(outcome), *news[1:]]))

    tooltip = "Some ten to twenty seconds"
    runner = Runner("Let it fail", work, "Nothing has failed yet.", tooltip, thread)
    note = "what a failure costs here: repeated steps, or the restart?"
    return workbench(controls, [asked, *runner.widget.children, below], ask, note)


def asked_words(setting: Setting) -> str:
    """Say what a click would do."""
    own = experiment(setting)
    steps = -(-own.dataset.samples * 8 // 10 // int(own.global_batch)) * int(own.run.epochs)
    return (
        f"Some {round(steps, -2)} steps of a small network on digits, on {ranks_in_words(setting.ranks)}; a snapshot"
        f" every {setting.every} steps. Ranks are killed with kill -9, {setting.often:g} times in the time of the"
        f" undisturbed run on average, at most {MOST} times; mpiexec then ends the others, and the run is started"
        " again from its newest snapshot."
    )


def total_of(alone: Alone) -> float:
    """Return the s of the undisturbed run from its start until its ranks are gone."""
    return alone.startup + alone.seconds + alone.ending


def mtbf_of(setting: Setting, alone: Alone) -> float:
    """Return the mean s between two failures."""
    return (alone.startup + alone.seconds) / setting.often


def price_of(alone: Alone) -> Saving:
    """Return what a snapshot and a restart cost, as measured in the undisturbed run."""
    return Saving(float(len(alone.weights)), 0.0, alone.copying, restart=alone.startup)


def interval_of(setting: Setting, alone: Alone) -> float:
    """Return the s of training between two snapshots."""
    return setting.every * alone.seconds / alone.steps


def simulated(setting: Setting, outcome: Outcome) -> FailureRuns:
    """Return the run in the simulator, with the failures of the real one."""
    every, alone = interval_of(setting, outcome.alone), outcome.alone
    price, failures = price_of(alone), outcome.own.failures
    return simulate_runs(alone.seconds, every, price, failures=failures, start=alone.startup)


def expected(setting: Setting, alone: Alone) -> float:
    """Return the s that such a run takes on average, without its end."""
    every, price = interval_of(setting, alone), price_of(alone)
    return alone.startup + float(
        alone.seconds / every * expected_cycle(every, price, mtbf_of(setting, alone))
    )


def measured(outcome: Outcome) -> dict[str, float]:
    """Return the time by phase, in s."""
    own = outcome.own
    last, first = own.legs[-1], own.legs[0]
    begun = first.begun if first.begun is not None else first.ended
    steps = sum(leg.reached - leg.first for leg in own.legs)
    again = own.training * sum(own.again) / max(steps, 1)
    return {
        "first start": begun,
        "training": own.training - again,
        "repeated work": again,
        "restart": last.ended - begun - own.training,
        "end": own.wall - last.ended,
    }


def rows_of(setting: Setting, outcome: Outcome) -> tuple[dict[str, list[Phase]], float]:
    """Return what the undisturbed run, the real one and the simulated one did, and the s to draw."""
    alone, own = outcome.alone, outcome.own
    whole = alone.startup + alone.seconds
    steps = max(sum(leg.reached - leg.first for leg in own.legs), 1)
    rows: dict[str, list[Phase]] = {"undisturbed": [], "measured": [], "simulated": []}
    rows["undisturbed"] = [
        Phase("first start", 0.0, alone.startup, 0.0),
        Phase("training", alone.startup, whole, 0.0),
    ]
    lost = 0  # steps that are to be repeated
    for number, leg in enumerate(own.legs):
        died = leg.killed is not None
        lost += own.again[number - 1] if number else 0
        begun = leg.ended if leg.begun is None else leg.begun
        since = own.legs[number - 1].ended if number else 0.0
        turn = min(begun + lost * own.training / steps, leg.ended)
        lost = 0 if turn < leg.ended else lost
        parts = [
            ("restart", since, begun),
            ("repeated work", begun, turn),
            ("training", turn, leg.ended),
        ]
        kept = [part for part in parts if part[2] > part[1]]
        rows["measured"] += [Phase(*part, 0.0, not (died and part is kept[-1])) for part in kept]
    run = simulated(setting, outcome)
    rows["simulated"] = list(run.phases)
    return rows, max(own.wall, float(run.wall[0]), whole)


def outcome_words(outcome: Outcome) -> str:
    """Say how it ended: failures, time, and whether the weights are the same."""
    count = len(outcome.own.failures)
    same = outcome.own.weights == outcome.alone.weights
    bits = f"{'bitwise identical to' if same else 'not'} those of the undisturbed run"
    sign, plural = "✓" if same else "✗", "s" * (count != 1)
    parts = measured(outcome)
    return (
        f"<b>{sign} After {count} failure{plural} it is done, and its weights are {bits}.</b>"
        f" It took {show(outcome.own.wall, 's')}, undisturbed {show(total_of(outcome.alone), 's')}. Lost:"
        f" {show(parts['restart'], 's')} to restarts, {show(parts['repeated work'], 's')} to"
        f" {sum(outcome.own.again)} repeated steps. Accuracy {outcome.alone.accuracy:.1%}."
    )


def at_its_own_speed(outcome: Outcome) -> Alone:
    """Return the undisturbed run with the start and the steps/s of the killed one."""
    own = outcome.own
    steps = max(sum(leg.reached - leg.first for leg in own.legs), 1)
    pace, begun = own.training / steps, measured(outcome)["first start"]
    return outcome.alone._replace(startup=begun, seconds=pace * outcome.alone.steps)


def parts_of(setting: Setting, outcome: Outcome) -> dict[str, float]:
    """Return the time of the simulated run by phase, in s, by the names of the measured one."""
    parts = {
        name: float(seconds[0]) for name, seconds in simulated(setting, outcome).seconds.items()
    }
    standing = parts.pop("checkpoint") + parts.pop("wait")
    parts["training"] += standing  # a copy is part of a step, as it is measured
    return {**parts, "end": outcome.alone.ending}


def result_html(setting: Setting, outcome: Outcome) -> str:
    """Return the time by phase, measured and simulated with the same failures, and why they differ."""
    real, predicted = measured(outcome), parts_of(setting, outcome)
    paced = parts_of(setting, Outcome(at_its_own_speed(outcome), outcome.own))
    lines = [["time by phase", "predicted", "error", "at its own speed", "error", "measured"]]
    names = {"first start": "start", "restart": "restarts"}
    for name, seconds in [*real.items(), ("all", sum(real.values()))]:
        two = [sum(way.values()) if name == "all" else way[name] for way in (predicted, paced)]
        each = [[show(s, "s"), f"{s / seconds - 1:+.0%}" if seconds > 0.005 else ""] for s in two]
        lines.append([names.get(name, name), *each[0], *each[1], show(seconds, "s")])
    mean, every = (
        expected(setting, outcome.alone) + outcome.alone.ending,
        interval_of(setting, outcome.alone),
    )
    best, step = (
        float(young(outcome.alone.copying, mtbf_of(setting, outcome.alone))),
        outcome.alone.seconds / outcome.alone.steps,
    )
    advice = show(best, "s") if best > step else "one after each step"
    return table_html(lines) + verdict_html(
        "<b>Predicted</b>: the run simulated with these failures, from the start and the steps/s of the undisturbed"
        " one."
        " <b>At its own speed</b>: from the start and the steps/s of the killed run; that error is the error of the"
        " model, and the rest is this machine, whose cores other processes use as well."
        "<br><b>Why they differ.</b> A real restart waits until mpiexec has ended the other ranks; a snapshot counts"
        " once"
        " it is published, some milliseconds after its copy; a failure that comes before the ranks are there waits for"
        " them; and where the speed differs, a failure hits another step."
        f"<br><b>On average</b> such a run takes {show(mean, 's')} by the formula, if failures never end. A snapshot"
        f" every {show(every, 's')} of training stalled it for {show(outcome.alone.copying, 's')}: by Young's formula"
        f" {advice} would be best."
    )
