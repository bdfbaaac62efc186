"""What one loader read on a folder and on a store, beside its prediction: rates, terms, errors, words."""

from typing import Annotated, Any, NamedTuple

from lib_dlhpc.calibration import page_cache
from lib_dlhpc.calibration.expected import reading as one_sample
from lib_dlhpc.calibration.io import Setting as Asked
from lib_dlhpc.calibration.points import COLD, WARM
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.io_bottleneck.charts import HOW
from lib_dlhpc.explore.io_bottleneck.here import BATCH, FILES
from lib_dlhpc.prediction.storage.io import reading
from lib_dlhpc.sentences import sentences
from lib_dlhpc.simulation import clients
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.machine import StorageTier
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

say = sentences(__file__)

SIZES = {f"{size >> 10} KiB": size for size in (4 << 10, 16 << 10, 64 << 10)}  # B
STATES = {"in memory": WARM}
if page_cache.ADVISE in page_cache.ways():
    STATES["on the disk"] = COLD
COPIES = {"one copy in all": 1, "a copy on each rank": 0}
WAYS = {"files": "folder", "mounted": "store", "many": f"store, {BATCH} at once"}
TERMS = {name: name for name in ("metadata", "read latency", "transfer", "remote reads")}
TERMS["decoding"] = "loader and store"
SIMULATED = 4000  # samples


class Setting(NamedTuple):
    """What a click reads. size: B of a file; copies: 0, one on each rank."""

    size: Annotated[int, Slider("A file", f"Of {FILES:,}", SIZES)] = 16 << 10
    state: Annotated[str, Dropdown("Files are", "Before each epoch", STATES)] = WARM
    ranks: Annotated[int, Slider("Ranks", "Each reads its part of an epoch", (1, 2, 4))] = 2
    copies: Annotated[int, Dropdown("Store", "Copies of each file", COPIES)] = 1

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


def outcome_words(setting: Setting, outcome: Read) -> str:
    """Say which way was the fastest, and whether the samples are the same."""
    took = outcome.read["took"]
    one, many = (f"{took['files'] / took[way]:.2g} times its rate" for way in ("mounted", "many"))
    same = "the same samples in the same order" if outcome.read["same"] else "NOT the same samples"
    warm = setting.state == WARM
    return (
        f"<b>From the store the loader reached {one} on the folder, and with {BATCH} requests at once"
        f" {many}.</b> All three read {same}. On {outcome.tier['system'] or 'this file system'}, files"
        f" {'in memory' if warm else 'dropped from memory before each epoch, names kept'}."
    )


def result_html(setting: Setting, outcome: Read) -> str:
    """Return files/s and the time of a sample by term, predicted, simulated and measured, and why they differ."""
    files = [["files per second", *HOW, "error"]]
    parts = [["time of a reader for a sample", *WAYS.values()]]
    for way, words in WAYS.items():
        own = rates(setting, outcome, way)
        files.append([words, *map(format_plain, own), f"{own[0] / own[2] - 1:+z.0%}"])
    terms = [reading(experiment(setting, outcome, way)).reader for way in WAYS]
    whole = [setting.ranks * outcome.read["took"][way] / FILES for way in WAYS]
    left = [all_ - sum(map(float, own.values())) for all_, own in zip(whole, terms, strict=True)]
    rows = {words: [float(own[name]) for own in terms] for name, words in TERMS.items()}
    rows |= {"not predicted": left, "measured": whole}
    rows["once, to open and find all"] = [outcome.read["ready"][way] for way in WAYS]
    parts += [[name, *(show(seconds, "s") for seconds in row)] for name, row in rows.items()]
    why = verdict_html(say.why + busy_words(outcome))
    return table_html(files) + table_html(parts) + why


def busy_words(outcome: Read) -> str:
    """Say how many processes shared the cores, where there were more than cores."""
    load = outcome.read["load"]
    if load <= cores():
        return ""
    return (
        f" In the last minute {load:.0f} processes shared the {cores()} cores of this machine: the measurement is"
        " slower for that, and will vary."
    )
