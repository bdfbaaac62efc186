"""The same network split three ways on MPI ranks of this machine: its step, its terms, and the same loss.

The rate of a run on one rank is all that calibrates the predictions; its loss is what all other runs are
compared with.
"""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

from lib_dlhpc.explore.blocks import live_run
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider
from lib_dlhpc.explore.blocks.live_run import Came, Ran, Train, on_ranks, one_step
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.three_ways import terms_html, three_ways
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.prediction import predict
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

say = sentences(__file__)

WAYS = {
    "data": "samples (data)",
    "tensor": "every layer (tensor)",
    "pipeline": "the sequence of layers (pipeline)",
}
BY_WORDS = {words: way for way, words in WAYS.items()}
DIVIDED, PARTS = "What the ranks divide among them", "Parts of a rank's batch"
RANKS, MICROBATCHES = (1, 2, 4), (1, 2, 4, 8)
WIDTHS = [64, 384, 384, 384, 384, 384, 10]
QUICKEST = ("one rank alone", *WAYS.values())
BATCH, EPOCHS = 240, 6
SHOWN = 10  # the step on the chart: the first ones make connections and fill caches


class Setting(NamedTuple):
    """What is split, over how many ranks, and the microbatches of a rank."""

    way: Annotated[str, Dropdown("Split", DIVIDED, BY_WORDS)] = "pipeline"
    ranks: Annotated[int, Slider("Ranks", "One has it all", RANKS)] = 1
    microbatches: Annotated[int, Slider("Microbatches", PARTS, MICROBATCHES)] = 4


ALONE = Setting("data", 1, 1)  # one rank is one rank, whatever the other controls say


Runs = dict[Setting, Ran]


def asked_words(setting: Setting) -> str:
    """Say what a click would train."""
    if setting.ranks == 1:
        return (
            f"1 rank with all {len(WIDTHS) - 1} layers and the whole batch of {BATCH}: what the others are"
            " compared with."
        )
    parts = count(setting.microbatches, "microbatch")
    return {
        "data": f"{setting.ranks} ranks with all layers and {BATCH // setting.ranks} samples each, in {parts}.",
        "tensor": f"{setting.ranks} ranks, each with a shard of every layer and all {BATCH} samples, in {parts}.",
        "pipeline": f"{setting.ranks} ranks, each with some layers; {BATCH} samples pass through in {parts}.",
    }[setting.way]


@on_ranks(Setting(), asked_words)
def split_here(setting: Setting, train: Train) -> Came:
    """Look for who is idle and why; and the loss, which must not depend on the split."""
    own = ALONE if setting.ranks == 1 else setting
    timeline, runs = train.once(own, experiment), train.known
    ran = runs[own]
    said, result = came_out(setting, ran, runs), result_html(setting, ran.terms, runs)
    return Came(one_step(timeline, SHOWN), verdict_html(said), result)


def experiment(setting: Setting) -> Experiment:
    """Return the run: a perceptron on digits, the same global batch in float64 however it is split."""
    way, ranks, microbatches = setting
    split = {"batch": BATCH // ranks} if way == "data" else {"batch": BATCH, way: ranks}
    how = {"allreduce": "ring", "precision": "fp64", "schedule": "1f1b"}
    parts = {"microbatches": microbatches if ranks > 1 else 1, "devices_per_node": ranks}
    return Experiment(
        model={"family": "mlp", "widths": WIDTHS},
        dataset="digits",
        machine="laptop",
        strategy={"nodes": 1, **parts, **how, **split},
        run={"epochs": EPOCHS},
        training={"rate": 0.05},
    )


def quickest(setting: Setting) -> str:
    """Return which of QUICKEST has the shortest predicted step, on the catalog's laptop."""
    settings = [ALONE, *(setting._replace(way=way) for way in WAYS)]
    times = [float(predict(experiment(each)).step_time) for each in settings]
    return QUICKEST[times.index(min(times))]


def came_out(setting: Setting, ran: Ran, runs: Runs) -> str:
    """Say how fast the run was, and how far its loss is from that of one rank."""
    rate = f"<b>{show(ran.rate, 'samples/s')}</b> on {count(setting.ranks, 'rank')}; loss {ran.loss:.12f}"
    alone = runs.get(ALONE)
    if alone is None or setting.ranks == 1:
        return f"{rate}."
    off = abs(ran.loss - alone.loss) / alone.loss
    return (
        f"{rate}, on one rank {alone.loss:.12f}: {f'they differ by {off:.0e} of it' if off else 'the same to the bit'}."
        f" {ran.rate / alone.rate:.2g} times as fast as one rank."
    )


def result_html(setting: Setting, measured: Mapping[str, float], runs: Runs) -> str:
    """Return the terms of this run three ways with errors, all runs so far, and why they differ."""
    if ALONE not in runs:
        return verdict_html(live_run.ALONE_MISSING)
    rate = runs[ALONE].rate
    ways = three_ways(live_run.with_rate(experiment(setting), rate), measured)
    lines = [["split", "ranks", "microbatches", "measured", "predicted", "error"]]
    for each, ran in sorted(runs.items()):
        said = [WAYS[each.way], str(each.ranks), str(each.microbatches)]
        cells = live_run.predicted_cells(experiment(each), rate, ran.rate)
        if each == ALONE:
            said, cells = ["nothing", "1", ""], live_run.CALIBRATES
        lines.append([*said, show(ran.rate, "samples/s"), *cells])
    return terms_html(ways) + table_html(lines) + verdict_html(say.why)
