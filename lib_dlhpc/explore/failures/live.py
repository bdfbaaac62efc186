"""The failure machine on the page: a button, and a run that is killed until it is done; what was foretold beside it.

fail_here()    the experiment: controls, what was measured and played, phase by phase, and the time that was lost
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import ipywidgets

from lib_dlhpc.costs.checkpoints import Saving
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.live_run import ranks_in_words
from lib_dlhpc.explore.blocks.panels import problem_html, table_html
from lib_dlhpc.explore.blocks.workbench import slider, verdict_html, workbench
from lib_dlhpc.explore.failures.charts import phases_state
from lib_dlhpc.explore.failures.machine import (
    MOST,
    Alone,
    Cancelled,
    Setting,
    Survived,
    experiment,
    survive,
    undisturbed,
)
from lib_dlhpc.launch.local import JobError
from lib_dlhpc.prediction.intervals import expected_cycle, young
from lib_dlhpc.simulation.failures import FailureRuns, Phase, simulate_runs
from lib_dlhpc.spec.units import format_quantity as show

OFTEN, EVERY, RANKS = (0.5, 1.0, 2.0, 4.0), (10, 50, 100, 200), (1, 2)
SEEDS = (24, 6, 8, 18, 7)  # whose first failures come soon
# A laptop's undisturbed run, rounded: what the question before the first click is about.
EXAMPLE = Alone(
    startup=1.0, seconds=3.0, ending=0.0, copying=0.002, steps=600, weights=b"", accuracy=0.0
)


class Came(NamedTuple):
    """What came of a click."""

    alone: Alone
    own: Survived


def fail_here(
    left_alone: Callable[..., Alone] = undisturbed,
    survived: Callable[..., Survived] = survive,
    thread: Callable[..., Any] = threading.Thread,
) -> ipywidgets.Box:
    """Return controls, a button that starts it, and what came of it. thread: in what it is done."""
    controls = {
        "often": slider(
            "Failures",
            "On the mean, in the time of the undisturbed run",
            [(f"{n:g}", n) for n in OFTEN],
            2.0,
        ),
        "every": slider(
            "Snapshot", "Steps from one to the next", [(f"{n} steps", n) for n in EVERY], 50
        ),
        "ranks": slider("Ranks", "They share each batch", [(str(n), n) for n in RANKS], 2),
        "seed": slider(
            "Seed",
            "Other moments, other ranks",
            [(str(n), seed) for n, seed in enumerate(SEEDS, 1)],
            SEEDS[0],
        ),
    }
    go = ipywidgets.Button(
        description="Let it fail",
        button_style="danger",
        tooltip="Some ten to twenty seconds",
        layout={"width": "auto"},
    )
    cancel = ipywidgets.Button(description="Cancel", tooltip="Ends all ranks", disabled=True)
    asked, said = ipywidgets.HTML(), ipywidgets.HTML(verdict_html("Nothing has failed yet."))
    phases, result, below = chart("failures_phases"), ipywidgets.HTML(), ipywidgets.VBox([])
    stop = threading.Event()

    def chosen() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def ask() -> None:
        asked.value = verdict_html(asked_words(chosen()))

    def work(setting: Setting) -> None:
        news: list[str] = []

        def tell(words: str) -> None:
            news.append(words)
            said.value = verdict_html("<br>".join(news))

        try:
            tell("First undisturbed, to know what to expect ...")
            alone = left_alone(setting, stop)
            news.clear()
            tell(f"Undisturbed it took {show(total_of(alone), 's')}. Now with failures ...")
            came = Came(alone, survived(setting, mtbf_of(setting, alone), stop, tell))
            phases.update(*phases_state(*rows_of(setting, came)))
            result.value = result_html(setting, came)
            below.children = (phases, result)
            said.value = verdict_html("<br>".join([came_words(came), *news[1:]]))
        except Cancelled:
            said.value = verdict_html("Cancelled.")
        except (JobError, SpecError, OSError) as reason:
            said.value = problem_html(str(reason))
        finally:
            go.disabled, cancel.disabled = False, True

    def clicked(_: Any) -> None:
        go.disabled, cancel.disabled = True, False
        stop.clear()
        thread(target=work, args=(chosen(),), daemon=True).start()

    go.on_click(clicked)
    cancel.on_click(lambda _: stop.set())
    note = "what a failure costs here: steps that are done again, or the restart?"
    row = ipywidgets.HBox([go, cancel], layout={"flex_flow": "row wrap"})
    return workbench(controls, [asked, row, said, below], ask, note)


def asked_words(setting: Setting) -> str:
    """Say what a click would do."""
    own = experiment(setting)
    steps = -(-own.dataset.samples * 8 // 10 // int(own.global_batch)) * int(own.run.epochs)
    return (
        f"Some {round(steps, -2)} steps of a small network on digits, on {ranks_in_words(setting.ranks)}; a snapshot"
        f" every {setting.every} steps. Ranks are killed with kill -9, {setting.often:g} times in the time of the"
        f" undisturbed run on the mean, at most {MOST} times; mpiexec then ends the others, and the run is started"
        " again from its newest snapshot."
    )


def total_of(alone: Alone) -> float:
    """Return the s of the undisturbed run from its start until its ranks are gone."""
    return alone.startup + alone.seconds + alone.ending


def mtbf_of(setting: Setting, alone: Alone) -> float:
    """Return the mean s between two failures."""
    return (alone.startup + alone.seconds) / setting.often


def price_of(alone: Alone) -> Saving:
    """Return what a snapshot and a restart cost, as the undisturbed run tells it."""
    return Saving(float(len(alone.weights)), 0.0, alone.copying, restart=alone.startup)


def interval_of(setting: Setting, alone: Alone) -> float:
    """Return the s of training between two snapshots."""
    return setting.every * alone.seconds / alone.steps


def played(setting: Setting, came: Came) -> FailureRuns:
    """Return the run as the simulator plays it, with the failures that there were."""
    every, alone = interval_of(setting, came.alone), came.alone
    price, failures = price_of(alone), came.own.failures
    return simulate_runs(alone.seconds, every, price, failures=failures, start=alone.startup)


def expected(setting: Setting, alone: Alone) -> float:
    """Return the s that such a run takes on the mean, without its end."""
    every, price = interval_of(setting, alone), price_of(alone)
    return alone.startup + float(
        alone.seconds / every * expected_cycle(every, price, mtbf_of(setting, alone))
    )


def measured(came: Came) -> dict[str, float]:
    """Return what became of the time, in s."""
    own = came.own
    last, first = own.legs[-1], own.legs[0]
    begun = first.begun if first.begun is not None else first.ended
    steps = sum(leg.reached - leg.first for leg in own.legs)
    again = own.training * sum(own.again) / max(steps, 1)
    return {
        "first start": begun,
        "training": own.training - again,
        "work done again": again,
        "restart": last.ended - begun - own.training,
        "end": own.wall - last.ended,
    }


def rows_of(setting: Setting, came: Came) -> tuple[dict[str, list[Phase]], float]:
    """Return what the undisturbed run, the real one and the played one did, and for how long to draw it."""
    alone, own = came.alone, came.own
    whole = alone.startup + alone.seconds
    steps = max(sum(leg.reached - leg.first for leg in own.legs), 1)
    rows: dict[str, list[Phase]] = {"undisturbed": [], "measured": [], "played": []}
    rows["undisturbed"] = [
        Phase("first start", 0.0, alone.startup, 0.0),
        Phase("training", alone.startup, whole, 0.0),
    ]
    lost = 0  # steps that are to be done again
    for number, leg in enumerate(own.legs):
        died = leg.killed is not None
        lost += own.again[number - 1] if number else 0
        begun = leg.ended if leg.begun is None else leg.begun
        since = own.legs[number - 1].ended if number else 0.0
        turn = min(begun + lost * own.training / steps, leg.ended)
        lost = 0 if turn < leg.ended else lost
        parts = [
            ("restart", since, begun),
            ("work done again", begun, turn),
            ("training", turn, leg.ended),
        ]
        kept = [part for part in parts if part[2] > part[1]]
        rows["measured"] += [Phase(*part, 0.0, not (died and part is kept[-1])) for part in kept]
    simulated = played(setting, came)
    rows["played"] = list(simulated.phases)
    return rows, max(own.wall, float(simulated.wall[0]), whole)


def came_words(came: Came) -> str:
    """Say how it ended: failures, time, and whether the weights are the same."""
    count = len(came.own.failures)
    same = came.own.weights == came.alone.weights
    bits = f"{'bit for bit' if same else 'not'} those of the undisturbed run"
    sign, plural = "✓" if same else "✗", "s" * (count != 1)
    parts = measured(came)
    return (
        f"<b>{sign} After {count} failure{plural} it is done, and its weights are {bits}.</b>"
        f" It took {show(came.own.wall, 's')}, undisturbed {show(total_of(came.alone), 's')}. Lost:"
        f" {show(parts['restart'], 's')} to restarts, {show(parts['work done again'], 's')} to"
        f" {sum(came.own.again)} steps done again. Accuracy {came.alone.accuracy:.1%}."
    )


def at_its_own_pace(came: Came) -> Alone:
    """Return the undisturbed run as if it had started as fast, and made as many steps/s, as the killed one."""
    own = came.own
    steps = max(sum(leg.reached - leg.first for leg in own.legs), 1)
    pace, begun = own.training / steps, measured(came)["first start"]
    return came.alone._replace(startup=begun, seconds=pace * came.alone.steps)


def parts_of(setting: Setting, came: Came) -> dict[str, float]:
    """Return what became of the time in the run that is played, in s, by the names of what was measured."""
    parts = {name: float(seconds[0]) for name, seconds in played(setting, came).seconds.items()}
    standing = parts.pop("checkpoint") + parts.pop("wait")
    parts["training"] += standing  # a copy is part of a step, as it is measured
    return {**parts, "end": came.alone.ending}


def result_html(setting: Setting, came: Came) -> str:
    """Return what became of the time, measured and played with the same failures, and why they part."""
    real, foretold = measured(came), parts_of(setting, came)
    paced = parts_of(setting, Came(at_its_own_pace(came), came.own))
    lines = [
        ["what became of the time", "foretold", "error", "at its own pace", "error", "measured"]
    ]
    names = {"first start": "start", "restart": "restarts"}
    for name, seconds in [*real.items(), ("all", sum(real.values()))]:
        two = [sum(way.values()) if name == "all" else way[name] for way in (foretold, paced)]
        each = [[show(s, "s"), f"{s / seconds - 1:+.0%}" if seconds > 0.005 else ""] for s in two]
        lines.append([names.get(name, name), *each[0], *each[1], show(seconds, "s")])
    mean, every = (
        expected(setting, came.alone) + came.alone.ending,
        interval_of(setting, came.alone),
    )
    best, step = (
        float(young(came.alone.copying, mtbf_of(setting, came.alone))),
        came.alone.seconds / came.alone.steps,
    )
    advice = show(best, "s") if best > step else "one after each step"
    return table_html(lines) + verdict_html(
        "<b>Foretold</b> is the run as the simulator plays it with these failures, from what the undisturbed one told:"
        " its start and its steps/s. <b>At its own pace</b>: from the start and the steps/s of the run that was killed;"
        " what is left there is the error of the model, and the rest is this machine, whose cores others use as well."
        "<br><b>Why they part.</b> A real restart waits until mpiexec has ended the other ranks; a snapshot counts once"
        " it is published, some milliseconds after its copy; a failure that comes before the ranks are there waits for"
        " them; and where the pace differs, a failure meets another step."
        f"<br><b>On the mean</b> such a run takes {show(mean, 's')} by the formula, if failures never end. A snapshot"
        f" every {show(every, 's')} of training stopped it for {show(came.alone.copying, 's')}: by Young's formula"
        f" {advice} would be best."
    )
