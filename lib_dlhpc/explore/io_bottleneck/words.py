"""What one loader read on a folder and on a store, beside its prediction: rates, terms, errors, words."""

from typing import Any, NamedTuple

from lib_dlhpc.calibration.expected import reading as one_sample
from lib_dlhpc.calibration.io import Setting as Asked
from lib_dlhpc.calibration.points import WARM
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.io_bottleneck.here import BATCH, FILES
from lib_dlhpc.prediction.io import reading
from lib_dlhpc.simulation.storage import clients
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.machine import StorageTier
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

WAYS = {"files": "folder", "mounted": "store", "many": f"store, {BATCH} at once"}
SIMULATED = 4000  # samples


class Setting(NamedTuple):
    """What the controls say. size: B of a file; copies: 0, one on each rank."""

    size: int = 16 << 10
    state: str = WARM
    ranks: int = 2
    copies: int = 1

    @property
    def held(self) -> int:
        """On how many ranks each partition lies."""
        return self.copies or self.ranks


class Read(NamedTuple):
    """A run: the tier as fitted, and the report of the ranks."""

    tier: dict[str, Any]
    read: dict[str, Any]


def experiment(setting: Setting, outcome: Read, way: str) -> Experiment:
    """Return one way of reading as an experiment: the fitted tier, the loader's own work, requests to ranks.

    Its own work is what one rank alone took in memory, beyond what the tier says of that; ranks without a core of
    their own share one.
    """
    tier = StorageTier(**outcome.tier["tier"])
    what = "file" if way == "files" else "random"
    own = one_sample(tier, Asked(what, setting.size, setting.ranks))
    alone = reading(one_sample(tier, Asked(what, setting.size, 1))).reader.values()
    # The tier of a disk says nothing of memory.
    known = float(sum(alone)) if setting.state == WARM else 0.0
    work = max(outcome.read[way] - known, outcome.read["work"])
    changes: dict[str, Any] = {"storage.decode": work * max(setting.ranks / cores(), 1.0)}
    if way != "files" and setting.held < setting.ranks:
        elsewhere = 1 - setting.held / setting.ranks
        asked = 1.0 if way == "mounted" else 1 / (BATCH * elsewhere)  # requests of a remote sample
        changes |= {
            "machine.nodes": setting.ranks,
            "machine.inter_node.latency": outcome.read["latency"] * asked,
            "machine.inter_node.bandwidth": outcome.read["bandwidth"],
            "machine.inter_node.efficiency": 1.0,
            "strategy.nodes": setting.ranks,
            "storage.workers": 1,
            "storage.access": "cooperative",
            "storage.local": "tier",
            "storage.replication": setting.held,
        }
        for rate in ("bandwidth", "read_rate"):  # one disk for all ranks
            if getattr(tier, rate) < float("inf"):
                changes[f"machine.storage.tier.{rate}"] = getattr(tier, rate) / setting.ranks
    return own.set(changes)


def rates(setting: Setting, outcome: Read, way: str) -> tuple[float, float, float]:
    """Return files/s predicted, simulated and measured."""
    own = experiment(setting, outcome, way)
    simulated = clients(own, SIMULATED, setting.ranks).rate
    return float(reading(own).rate), simulated, FILES / outcome.read["took"][way]


def rows(setting: Setting, outcome: Read) -> list[tuple[str, str, float]]:
    """Return the bars: each way predicted, simulated, measured."""
    names = ("predicted", "simulated", "measured")
    return [
        (words, name, rate)
        for way, words in WAYS.items()
        for name, rate in zip(names, rates(setting, outcome, way), strict=True)
    ]


def outcome_words(setting: Setting, outcome: Read) -> str:
    """Say which way was the fastest, and whether the samples are the same."""
    took = outcome.read["took"]
    one, many = took["files"] / took["mounted"], took["files"] / took["many"]
    same = "the same samples in the same order" if outcome.read["same"] else "NOT the same samples"
    return (
        f"<b>Out of the store the loader outcome to {_times(one)} on the folder, and with {BATCH} at once to"
        f" {_times(many)}.</b> All three read {same}. On {outcome.tier['system'] or 'this file system'}, files"
        f" {'in memory' if setting.state == WARM else 'dropped from memory before each epoch, names kept'}."
    )


def _times(factor: float) -> str:
    return f"{factor:.2g} times its rate"


def result_html(setting: Setting, outcome: Read) -> str:
    """Return files/s and the time of a sample by term, predicted, simulated and measured, and why they differ."""
    lines = [["files a second", "predicted", "simulated", "measured", "error"]]
    for way, words in WAYS.items():
        predicted, simulated, real = rates(setting, outcome, way)
        lines.append(
            [
                words,
                *map(format_plain, (predicted, simulated, real)),
                f"{predicted / real - 1:+.0%}",
            ]
        )
    terms = {way: dict(reading(experiment(setting, outcome, way)).reader) for way in WAYS}
    parts = [["time of a reader for a sample", *WAYS.values()]]
    for name in ("metadata", "read latency", "transfer", "remote reads", "decoding"):
        own = "loader and store" if name == "decoding" else name
        parts.append([own, *(show(float(terms[way][name]), "s") for way in WAYS)])
    whole = {way: setting.ranks * outcome.read["took"][way] / FILES for way in WAYS}
    left = {way: whole[way] - sum(map(float, terms[way].values())) for way in WAYS}
    parts.append(
        ["not predicted", *(("-" if left[w] < 0 else "") + show(abs(left[w]), "s") for w in WAYS)]
    )
    parts.append(["measured", *(show(whole[way], "s") for way in WAYS)])
    ready = outcome.read["ready"]
    parts.append(["once, to open and find all", *(show(ready[way], "s") for way in WAYS)])
    return (
        table_html(lines)
        + table_html(parts)
        + verdict_html(
            "<b>Why they differ.</b> Metadata, latency and transfer are from files read just before, by readers that do"
            " nothing else; the loader's and the store's own work is what one rank alone took beyond that; a request"
            " to another rank was measured while that rank was idle. In the run ranks answer each other"
            " while they read, share the cores with all other processes, and the slowest of them counts: that is not"
            " predicted. So one request for each sample is slow on a busy machine, and requesting many"
            " at once helps most where the latency is longest. From the disk the store reads its partitions"
            " sequentially"
            " beside the first samples; that gain is not predicted either. FanStore competes not with the"
            f" memory of one computer but with a file system that hundreds of nodes use.{busy_words(outcome)}"
        )
    )


def busy_words(outcome: Read) -> str:
    """Say how many processes shared the cores, where there were more than cores."""
    load = outcome.read["load"]
    if load <= cores():
        return ""
    return (
        f" In the last minute {load:.0f} processes shared the {cores()} cores of this machine: the measurement is"
        " slower for that, and will vary."
    )
