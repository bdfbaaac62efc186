"""Networks split for real, on MPI ranks of this machine: the terms three ways, and equality with one rank.

One rank runs first: its rate is all that calibrates the prediction, and its losses are the reference for all
layouts.
"""

import threading
from collections.abc import Mapping

import ipywidgets

from lib_dlhpc.explore.blocks.live_run import Begin, Came, Train, live_run, one_step, ranks_in_words
from lib_dlhpc.explore.blocks.panels import notice_html, problem_html, table_html
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.blocks.three_ways import terms_html, three_ways
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, wall_html, workbench
from lib_dlhpc.explore.hybrid_parallel.runs import (
    NAMES,
    Ran,
    Setting,
    asked_words,
    calibrated,
    experiment,
    problem_of,
    ran_of,
)
from lib_dlhpc.launch.local import start
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline

SHOWN = 5  # the step on the chart: the first ones make connections and fill caches
CLOCK = 1e-9  # s; anything shorter is rounding
SAME = 1e-9  # relative difference of losses in float64 that only the order of sums can make
# Causes of idle time, by how events of the trace and of the simulation begin.
CAUSES = {
    "inside layers: halos and allreduces": ("halo", "all_", "reduce_", "the halo", "the tensor"),
    "from stage to stage": ("activation", "gradient", "what was sent"),
    "gradients, and for slower ranks": ("the exchange", "sum", "the others"),
}


def split_here(begin: Begin = start, thread: Thread = threading.Thread) -> ipywidgets.Box:
    """Return controls, a button that trains, one measured step, and its prediction.

    begin: what starts the ranks. thread: in what they are watched.
    """
    controls = {
        "network": dropdown(
            "Network", "What is trained", [(w, n) for n, w in NAMES.items()], "cubes"
        ),
        "inside": slider(
            "Ranks a layer", "Slabs, or tensor ranks", [(str(n), n) for n in (1, 2, 4)], 2
        ),
        "stages": slider("Stages", "Of a pipeline", [(str(n), n) for n in (1, 2)], 1),
        "replicas": slider("Replicas", "Data parallelism", [(str(n), n) for n in (1, 2)], 1),
        "microbatches": slider(
            "Microbatches", "Of a replica's batch", [(str(n), n) for n in (1, 2, 4, 8)], 1
        ),
    }
    asked, wall = ipywidgets.HTML(), ipywidgets.HTML()
    known: dict[Setting, Ran] = {}

    def chosen() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def ask() -> None:
        asked.value = verdict_html(asked_words(chosen()))
        wall.value = cores_html(chosen(), cores())

    def work(setting: Setting, train: Train) -> Came:
        if setting.alone not in known:
            first = "One rank is at work, to calibrate and to compare with ..."
            known[setting.alone] = ran_of(train(experiment(setting.alone), first)[0])
        outcome, timeline = train(experiment(setting))
        known[setting] = ran_of(outcome)
        ran, alone = known[setting], known[setting.alone]
        result = result_html(setting, ran, alone, timeline)
        return Came(one_step(timeline, SHOWN), equal_html(setting, ran, alone), result)

    run = live_run(chosen, work, begin, thread, problem_of)
    note = "which lane is idle, and for which rank it waits; then the last digits of the losses."
    return workbench(controls, [asked, wall, *run], ask, note)


def times_as_fast(setting: Setting) -> float:
    """Return how many times as fast as one rank so many are predicted to be, on the catalog's laptop."""
    one, many = (predict(experiment(each)).throughput for each in (setting.alone, setting))
    return float(many / one)


def cores_html(setting: Setting, count: int) -> str:
    """Say whether every rank has a core, as the prediction assumes."""
    if problem_of(setting):
        return wall_html(problem_of(setting), "")
    if setting.ranks <= count:
        return wall_html(
            "", f"Each of {ranks_in_words(setting.ranks)} has one of {count} cores, as predicted."
        )
    return notice_html(
        f"Oversubscribed: {ranks_in_words(setting.ranks)} on {count} core{'s' * (count > 1)}. The prediction gives"
        " each a core of its own; here they share them, and most of the measured waiting is for"
        " a core. The losses must be equal all the same."
    )


def equal_html(setting: Setting, ran: Ran, alone: Ran) -> str:
    """Say whether the losses are those of one rank."""
    if setting == setting.alone:
        return verdict_html(
            f"One rank: {show(ran.rate, 'samples/s')}; test loss {ran.test_loss:.15g}."
        )
    off = max(
        abs(ran.loss - alone.loss) / abs(alone.loss),
        abs(ran.test_loss - alone.test_loss) / abs(alone.test_loss),
    )
    words = (
        f"<b>Test loss {ran.test_loss:.15g}</b> on {ranks_in_words(setting.ranks)}, {alone.test_loss:.15g} on one:"
        f" the largest relative difference of the losses is {off:.1e}."
    )
    if off <= SAME:
        return verdict_html(
            f"✓ {words} It is the same run, split; another order of summation changes the last digit."
        )
    return problem_html(
        f"✕ {ran.test_loss:.15g} is not {alone.test_loss:.15g}: difference {off:.1e}."
    )


def result_html(setting: Setting, ran: Ran, alone: Ran, timeline: Timeline) -> str:
    """Return the terms of a step three ways, idle time by cause, and why they differ."""
    there = calibrated(setting, alone)
    steps = max(1, round(int(timeline.where("compute", "update").sum()) / timeline.ranks))
    predicted, simulated = predict(there), simulate(there)
    exposed = {name: float(seconds) for name, seconds in predicted.exposed.items()}
    ways = {
        "predicted": {
            "inside layers: halos and allreduces": exposed.get("halo", 0.0)
            + exposed.get("tensor", 0.0),
            "from stage to stage": exposed.get("pipeline", 0.0),
            "gradients, and for slower ranks": exposed["data"] + float(predicted.straggler_wait),
        },
        "simulated": idle_by_cause(simulated, 1),
        "measured": idle_by_cause(timeline, steps),
    }
    lines = [["idle time of a rank, of a step", *ways]]
    lines += [[name, *(show(way[name], "s") for way in ways.values())] for name in CAUSES]
    rate = float(predicted.throughput)
    off = rate / ran.rate - 1
    terms = {
        way: {name: seconds if seconds > CLOCK else 0.0 for name, seconds in values.items()}
        for way, values in three_ways(there, ran.terms).items()
    }
    terms["measured - predicted"] = errors(terms["predicted"], terms["measured"])
    return (
        terms_html(terms)
        + table_html(lines)
        + verdict_html(
            f"<b>Error.</b> Predicted {show(rate, 'samples/s')}, measured {show(ran.rate, 'samples/s')}:"
            f" {off:+.0%}. {why(setting, cores(), float(predicted.compute))} Simulation and trace count waiting"
            " for a slower rank where it happens, inside layers too; the prediction under <em>for slower ranks</em>."
        )
    )


def idle_by_cause(timeline: Timeline, steps: int) -> dict[str, float]:
    """Return the idle seconds of a mean rank in a step, by CAUSES; the bubble left out."""
    found = dict.fromkeys(CAUSES, 0.0)
    for event in timeline.select(timeline.where("compute", "wait")):
        whom = event.name.removeprefix("wait for ")
        for name, begins in CAUSES.items():
            if whom.startswith(begins):
                found[name] += (event.stop - event.start) / (timeline.ranks * steps)
    return found


def why(setting: Setting, count: int, compute: float) -> str:
    """Say what the prediction leaves out of such a run; compute: s of a step that each rank computes."""
    if setting.ranks == 1:
        return "One rank calibrates: what is left is rounding, and checks between steps."
    small = (
        "With arrays this small the Python between two messages takes longer than the arithmetic, and"
        " shards of a layer compute less efficiently than the whole"
    )
    if setting.ranks > count:
        least = show(compute * setting.ranks / count, "s")
        return (
            f"{ranks_in_words(setting.ranks)} share {count} core{'s' * (count > 1)}: their computation takes"
            f" {least} a step there, and a collective waits for ranks without a core. {small}."
        )
    return f"{small}."


def errors(predicted: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Return measured less predicted seconds for each term that either has."""
    names = {**predicted, **measured}
    return {name: measured.get(name, 0.0) - predicted.get(name, 0.0) for name in names}
