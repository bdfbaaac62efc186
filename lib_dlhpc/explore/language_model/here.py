"""A small decoder for real, on MPI ranks of this machine: one layout after another, the same loss, three ways.

One rank runs first: its rate is all that calibrates the predictions, and its loss is the reference of all layouts.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from lib_dlhpc.explore.blocks import live_run
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider
from lib_dlhpc.explore.blocks.live_run import Came, Ran, Train, on_ranks, one_step
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.three_ways import terms_html, three_ways
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

say = sentences(__file__)

LAYOUTS: dict[str, dict[str, Any]] = {  # {}: a count of ranks
    "replicas (DDP)": {},
    "shards of all state (ZeRO 3, FSDP)": {"zero": 3},
    "every layer (tensor, sequence)": {"tensor": 0, "sequence_parallel": True},
    "each sequence, in a ring (context)": {"context": 0, "context_exchange": "ring"},
    "each sequence, by heads (context)": {"context": 0, "context_exchange": "heads"},
    "stages, zero bubble (pipeline)": {"pipeline": 0, "schedule": "zb-h1", "microbatches": 4},
}
RING = "each sequence, in a ring (context)"
RANKS, SEQUENCES = (2, 4), (16, 32, 64)
DECODER = {"layers": 4, "hidden": 64, "heads": 4, "kv_heads": 4, "feed_forward": 176}
NETWORK = {"family": "llama", **DECODER, "sequence": 16, "vocabulary": 32}
SAMPLES, SHOWN = 512, 5  # the step on the chart: the first ones make connections and fill caches
SAME = 1e-9  # relative difference of losses in float64 that only the order of sums can make


class Setting(NamedTuple):
    """A layout. batch: sequences of a step, all ranks together."""

    layout: Annotated[str, Dropdown("Divided", "What the ranks divide", LAYOUTS.keys())] = RING
    ranks: Annotated[int, Slider("Ranks", "One process each", RANKS)] = 4
    batch: Annotated[int, Slider("Batch", "Sequences of a step", SEQUENCES)] = 32

    @property
    def alone(self) -> "Setting":
        """The same batch on one rank."""
        return Setting(next(iter(LAYOUTS)), 1, self.batch)


def asked_words(setting: Setting) -> str:
    """Say what a click would train."""
    return (
        f"{count(setting.ranks, 'rank')} divide {setting.layout}: {setting.batch} sequences of 16 words a step,"
        f" {2 * SAMPLES // setting.batch} steps. On the catalog's laptop {times_as_fast(setting):.2g} times as fast as"
        " one rank."
    )


@on_ranks(Setting(), asked_words)
def layouts_here(setting: Setting, train: Train) -> Came:
    """Look for which layout has the most messages in a step; and the loss, which no layout may change."""
    timeline, known = train.beside_one_rank(setting, experiment), train.known
    said, terms = came_out(known[setting], known[setting.alone]), known[setting].terms
    return Came(one_step(timeline, SHOWN), said, result_html(setting, terms, known))


def experiment(setting: Setting) -> Experiment:
    """Return the run: four blocks of a Llama on sentences, the same batch in float64 however it is divided."""
    split = {
        name: value if value else setting.ranks for name, value in LAYOUTS[setting.layout].items()
    }
    whole = {"tensor", "context", "pipeline"} & set(split)
    strategy = {
        "nodes": 1,
        "devices_per_node": setting.ranks,
        "batch": setting.batch if whole else setting.batch // setting.ranks,
        "precision": "fp64",
        "optimizer": "adam",
        **split,
    }
    return Experiment(
        model=NETWORK,
        dataset={"name": "words", "samples": SAMPLES},
        machine="laptop",
        strategy=strategy,
        run={"epochs": 2},
        training={"rate": 0.003},
    )


def times_as_fast(setting: Setting) -> float:
    """Return how many times as fast as one rank a layout is predicted to be, on the catalog's laptop."""
    return live_run.times_as_fast(experiment(setting), experiment(setting.alone))


def came_out(ran: Ran, alone: Ran) -> str:
    """Say how fast a run was, and how far its loss is from that of one rank."""
    off = abs(ran.loss - alone.loss) / alone.loss
    same = "✓ the same run" if off <= SAME else "✕ not the same run"
    return verdict_html(
        f"<b>{show(ran.rate, 'samples/s')}</b>, {ran.rate / alone.rate:.2g} times as fast as one rank. Loss"
        f" {ran.loss:.12f}, on one rank {alone.loss:.12f}: {same}, difference {off:.0e}."
    )


def result_html(
    setting: Setting, measured: Mapping[str, float], known: Mapping[Setting, Ran]
) -> str:
    """Return the terms of this run three ways, all runs of its batch, and why they differ."""
    rate = known[setting.alone].rate
    ways = three_ways(live_run.with_rate(experiment(setting), rate), measured)
    lines = [["divided", "ranks", "measured", "predicted", "error"]]
    for each, ran in known.items():
        if each.batch != setting.batch:
            continue
        name, cells = each.layout, live_run.predicted_cells(experiment(each), rate, ran.rate)
        if each == setting.alone:
            name, cells = "nothing", live_run.CALIBRATES
        lines.append([name, str(each.ranks), show(ran.rate, "samples/s"), *cells])
    return terms_html(ways) + table_html(lines) + verdict_html(say.why)
