"""Networks split for real, on MPI ranks of this machine: the terms three ways, and equality with one rank.

One rank runs first: its rate is all that calibrates the prediction, and its losses are the reference for all
layouts.
"""

from lib_dlhpc.explore.blocks import live_run
from lib_dlhpc.explore.blocks.bench import View
from lib_dlhpc.explore.blocks.live_run import Came, Ran, Train, on_ranks, one_step
from lib_dlhpc.explore.blocks.panels import problem_html, table_html
from lib_dlhpc.explore.blocks.three_ways import terms_html, three_ways
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.hybrid_parallel.charts import parts_of
from lib_dlhpc.explore.hybrid_parallel.runs import Setting, asked_words, experiment, problem_of
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline

SHOWN = 5  # the step on the chart: the first ones make connections and fill caches
SAME = 1e-9  # relative difference of losses in float64 that only the order of sums can make
# Causes of idle time, by how events of the trace and of the simulation begin, and their parts in the prediction.
CAUSES = {
    "inside layers: halos and allreduces": (
        ("halo", "all_", "reduce_", "the halo", "the tensor"),
        ("halos", "tensor allreduces"),
    ),
    "from stage to stage": (("activation", "gradient", "what was sent"), ("stage to stage",)),
    "gradients, and for slower ranks": (
        ("the exchange", "sum", "the others"),
        ("gradients", "waiting"),
    ),
}
SMALL = (
    "With arrays this small the Python between two messages takes longer than the arithmetic, and"
    " shards of a layer compute less efficiently than the whole"
)


@on_ranks(Setting(), lambda setting: asked_view(setting, cores()), fine="", refused=problem_of)
def split_here(setting: Setting, train: Train) -> Came:
    """Look for which lane is idle, and for which rank it waits; then the last digits of the losses."""
    timeline = train.beside_one_rank(setting, experiment)
    ran, alone = train.known[setting], train.known[setting.alone]
    result = result_html(setting, ran, alone, timeline)
    return Came(one_step(timeline, SHOWN), equal_html(setting, ran, alone), result)


def times_as_fast(setting: Setting) -> float:
    """Return the predicted speedup of ranks over one rank, on the catalog's laptop."""
    return live_run.times_as_fast(experiment(setting), experiment(setting.alone))


def asked_view(setting: Setting, there: int) -> View:
    """Say what a click would train, and whether every rank has a core, as the prediction assumes."""
    ranks, words = count(setting.ranks, "rank"), asked_words(setting)
    if problem := problem_of(setting):
        return View(words, problem)
    if setting.ranks <= there:
        return View(words, fine=f"Each of {ranks} has one of {there} cores, as predicted.")
    oversubscribed = (
        f"Oversubscribed: {ranks} on {count(there, 'core')}. The prediction gives each a core of its own; here they"
        " share them, and most of the measured waiting is for a core. The losses must be equal all the same."
    )
    return View(words, notice=oversubscribed)


def equal_html(setting: Setting, ran: Ran, alone: Ran) -> str:
    """Say whether the losses are those of one rank."""
    mine, its = f"{ran.test_loss:.15g}", f"{alone.test_loss:.15g}"
    if setting == setting.alone:
        return verdict_html(f"One rank: {show(ran.rate, 'samples/s')}; test loss {mine}.")
    pairs = ((ran.loss, alone.loss), (ran.test_loss, alone.test_loss))
    off = max(abs(a - b) / abs(b) for a, b in pairs)
    if off > SAME:
        return problem_html(f"✕ {mine} is not {its}: difference {off:.1e}.")
    return verdict_html(
        f"✓ <b>Test loss {mine}</b> on {count(setting.ranks, 'rank')}, {its} on one: the largest relative difference"
        f" of the losses is {off:.1e}. It is the same run, split; another order of summation changes the last digit."
    )


def result_html(setting: Setting, ran: Ran, alone: Ran, timeline: Timeline) -> str:
    """Return the terms of a step three ways, idle time by cause, and why they differ."""
    there = live_run.with_rate(experiment(setting), alone.rate)
    steps = max(1, round(int(timeline.where("compute", "update").sum()) / timeline.ranks))
    predicted = predict(there)
    parts = parts_of(predicted)
    ways = {
        "predicted": {name: sum(parts[p] for p in own) for name, (_, own) in CAUSES.items()},
        "simulated": idle_by_cause(simulate(there), 1),
        "measured": idle_by_cause(timeline, steps),
    }
    lines = [["idle time of a rank, of a step", *ways]]
    lines += [[name, *(show(way[name], "s") for way in ways.values())] for name in CAUSES]
    rate = float(predicted.throughput)
    said = verdict_html(
        f"<b>Error.</b> Predicted {show(rate, 'samples/s')}, measured {show(ran.rate, 'samples/s')}:"
        f" {rate / ran.rate - 1:+z.0%}. {why(setting, cores(), float(predicted.compute))} Simulation and trace count"
        " waiting for a slower rank where it happens, inside layers too; the prediction under <em>for slower"
        " ranks</em>."
    )
    return terms_html(three_ways(there, ran.terms)) + table_html(lines) + said


def idle_by_cause(timeline: Timeline, steps: int) -> dict[str, float]:
    """Return the idle seconds of a mean rank in a step, by CAUSES; the bubble left out."""
    found = dict.fromkeys(CAUSES, 0.0)
    for event in timeline.select(timeline.where("compute", "wait")):
        whom = event.name.removeprefix("wait for ")
        for name, (begins, _) in CAUSES.items():
            if whom.startswith(begins):
                found[name] += (event.stop - event.start) / (timeline.ranks * steps)
    return found


def why(setting: Setting, there: int, compute: float) -> str:
    """Say what the prediction leaves out of such a run; compute: s of a step that each rank computes."""
    if setting.ranks == 1:
        return "One rank calibrates, so only rounding and checks between steps are left."
    if setting.ranks <= there:
        return f"{SMALL}."
    least = show(compute * setting.ranks / there, "s")
    return (
        f"{count(setting.ranks, 'rank')} share {count(there, 'core')}: their computation takes {least} per step there,"
        f" and a collective waits for ranks without a core. {SMALL}."
    )
