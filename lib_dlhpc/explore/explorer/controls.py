"""The explorer's controls: what may be chosen on each, and where it applies; static/controls.toml has their words.

A control shows a value of the experiment, so a loaded file is shown by the same controls. panel.py puts them on the
page, moves.py makes one move.
"""

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.costs import peak_rate
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.explorer.choice import FACTORS, value_at
from lib_dlhpc.explore.explorer.measured import chosen, titles
from lib_dlhpc.layout import check_experts, stage_cut
from lib_dlhpc.schedules import COLLECTIVES
from lib_dlhpc.spec import adapters, catalog, strategy
from lib_dlhpc.spec.consistency import allreduces_on
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.loss import is_logits
from lib_dlhpc.spec.units import DAY, HOUR, YEAR
from lib_dlhpc.spec.units import format_quantity as show

Options = list[tuple[str, Any]]  # label, value
SIMPLE = {"model.name", "machine.name", "strategy.nodes", "strategy.batch", "run.epochs"}
EPOCHS = (0.1, 1.0, 2.0, 5.0, 10.0, 16.0, 30.0, 50.0, 64.0, 90.0, 100.0, 150.0, 200.0, 300.0)
BUCKETS = (1e3, 8e3, 1e5, 1e6, 2e6, 5e6, 10e6, 25e6, 50e6, 100e6, 250e6, 1e9, 1e12)
MTBF = (*(d * DAY for d in (10, 30, 90)), *(y * YEAR for y in (0.5, 1, 2, 5, 10, 20, 50)), np.inf)
INTERVALS = (0.0, 60.0, 300.0, 600.0, 1800.0, *(h * HOUR for h in (1, 2, 4, 8, 24)))
MOST_DEGREES, LARGEST_DEGREE = 7, 64
_FAMILIES = {  # of models, by their usual data set; ImageNet is that of all others
    "wikipedia-books": ["bert"],
    "webtext": [
        "gpt",
        "lstm_language_model",
        "decoder",
        "hybrid",
        "llama",
        "palm",
        "opt",
        "bloom",
        "mpt",
    ],
    "cosmoflow": ["cosmoflow", "cosmoflow_large"],
    "reactor-status": ["frnn"],
    "neural-image": ["srgan_generator", "srgan_discriminator"],
    "mnist-5k": ["lenet5"],
    "digits": ["sequential", "mlp"],
}
DATASETS = {family: name for name, families in _FAMILIES.items() for family in families}


@dataclass(frozen=True)
class Control:
    """One control; see static/controls.toml."""

    group: str
    field: str
    kind: str
    label: str
    help: str
    reason: str = ""

    def options(self, experiment: Experiment) -> Options:
        """Return what may be chosen, with its labels."""
        return OPTIONS[self.field](experiment)

    def off(self, experiment: Experiment) -> str:
        """Return why it does not apply; "" where it does."""
        applies = APPLIES.get(self.field)
        return "" if applies is None or applies(experiment) else self.reason


def standing(experiment: Experiment, field: str, times: float = 1) -> Any:
    """Return where a control stands for an experiment. times: the factor, where the control is one."""
    if field == "machine.name":
        return chosen(experiment.machine)
    if field == "strategy.devices_per_node":
        return int(experiment.devices_per_node)
    return times if field.startswith("times.") else value_at(experiment, field)


def replicas(e: Experiment) -> int:
    """Return how many replicas of the network there are."""
    return int(e.devices) // int(e.strategy.replica)


def node_counts(most: int, now: int, domain: int = 1) -> np.ndarray:
    """Return powers of two up to `most` nodes, `most` and `now` among them, sorted.

    domain: nodes that a fast domain spans; more of them are whole domains.
    """
    every = np.unique([*powers(0, int(np.log2(most))), most, now])
    if domain == 1:
        return every
    whole = [domain * count for count in powers(0, int(np.log2(max(most // domain, 1))))]
    return np.unique([*every[every <= domain], *whole, most // domain * domain, now])


def powers(first: int, last: int) -> list[int]:
    """Return powers of two."""
    return [2**n for n in range(first, last + 1)]


def _whole(most: str, other: str) -> Callable[[Experiment], Options]:
    """Options for a number up to `most` of the machine that makes whole replicas with `other`, and the present one."""

    def options(e: Experiment) -> Options:
        counts = {"nodes": int(e.strategy.nodes), "devices_per_node": int(e.devices_per_node)}
        domain = int(e.machine.domain) if most == "nodes" else 1
        every = node_counts(int(getattr(e.machine, most)), counts[most], domain)
        replica = int(e.strategy.replica)
        fits = [n for n in every if n == counts[most] or n * counts[other] % replica == 0]
        return [(f"{n:,}", int(n)) for n in fits]

    return options


def _among(
    field: str, values: Sequence[Any], shown: Callable[[Any], str] = "{:,}".format
) -> Callable[[Experiment], Options]:
    """Options for numbers, the present one among them."""

    def options(e: Experiment) -> Options:
        now = type(values[0])(standing(e, field) or values[0])
        return [(shown(value), value) for value in sorted({*values, now})]

    return options


def _named(names: Iterable[Any], shown: Callable[[Any], str] = str) -> Callable[[Any], Options]:
    return lambda _: [(shown(name), name) for name in names]


@cache
def _titles(kind: str) -> Options:
    options = [(catalog.read(kind, name)["title"], name) for name in catalog.names(kind)]
    return sorted(options, key=lambda option: option[0].casefold())


def _entries(kind: str, now: str) -> Options:
    """Options for an entry of the catalog, and for the present one that is of a file."""
    known = now in catalog.names(kind)
    return _titles(kind) if known else [("from your file", now), *_titles(kind)]


def _machines(e: Experiment) -> Options:
    measured = e.machine.measured is not None
    return [
        *titles(e.machine),
        *(_titles("machines") if measured else _entries("machines", e.machine.name)),
    ]


def _degrees(key: str) -> Callable[[Experiment], Options]:
    """Degrees of one way to split that divide the devices which the other ways leave."""

    def options(e: Experiment) -> Options:
        now = int(getattr(e.strategy, key))
        left = int(e.devices) * now // int(e.strategy.replica)
        most = min(left, LARGEST_DEGREE, len(e.model.layers))
        some = [n for n in range(1, most + 1) if left % n == 0]
        if len(some) > MOST_DEGREES:
            some = [n for n in some if n & (n - 1) == 0]
        return [(f"{n}", n) for n in sorted({*some, now})]

    return options


def _experts(e: Experiment) -> Options:
    fits = {n for n in powers(0, 8) if replicas(e) % n == 0}
    return [(f"{n}", n) for n in sorted({*fits, int(e.strategy.experts)})]


def _attends(e: Experiment) -> bool:
    return any("attention" in layer.kind for layer in e.model.layers)


def _adapts(e: Experiment) -> bool:
    kinds = {layer.kind for layer in e.model.layers}
    return bool(kinds & {*adapters.ATTENTION}) and not _has_experts(e)


def _has_experts(e: Experiment) -> bool:
    return e.model.has_experts


def _exchanges(e: Experiment) -> Options:
    """Return the ways in which tokens may travel to their experts."""
    ways = [way for way in strategy.EXPERT_EXCHANGES if _travels(e, way)]
    return [(way, way) for way in ways]


def _travels(e: Experiment, way: str) -> bool:
    try:
        check_experts(replace(e, strategy=replace(e.strategy, expert_exchange=way)))
    except SpecError:
        return way == e.strategy.expert_exchange
    return True


def _copies_once(e: Experiment) -> bool:
    """Return whether tokens travel to other ranks' experts, and may do so in one copy for a device."""
    return _has_experts(e) and e.strategy.experts > 1 and _travels(e, strategy.BY_DEVICE)


def _sends_fp8(e: Experiment) -> bool:
    return _has_experts(e) and e.strategy.experts > 1 and e.strategy.precision == strategy.FP8


def _shards(e: Experiment) -> Options:
    fits = {n for n in powers(1, 12) if n < replicas(e) and replicas(e) % n == 0}
    return [(f"{n}" if n else "all", n) for n in sorted({0, *fits, int(e.strategy.shards)})]


def _format(name: str) -> str:
    return "as computed" if name == strategy.SAME else name


def _precisions(e: Experiment) -> Options:
    known = strategy.TRAINING_PRECISIONS
    return [(p, p) for p in known if not np.isnan(peak_rate(e.machine.device, p))]


def _allreduces(e: Experiment) -> Options:
    known = COLLECTIVES["allreduce"]
    every = [(known[name].label, name) for name in allreduces_on(e.machine)]
    return [("cheapest for each size", strategy.AUTO), *every]


def _age(seconds: float) -> str:
    if np.isinf(seconds):
        return "never"
    return f"{seconds / YEAR:g} years" if seconds >= YEAR / 2 else f"{seconds / DAY:.3g} days"


def _factor(f: float) -> str:
    return f"× {f:g}" if f >= 1 else f"× 1/{1 / f:g}"


_ticks = _named((False, True), {False: "off", True: "on"}.__getitem__)
OPTIONS: dict[str, Callable[[Experiment], Options]] = {
    "model.name": lambda e: _entries("models", e.model.name),
    "model.sequence": _among("model.sequence", powers(7, 17)),
    "machine.name": _machines,
    "strategy.nodes": _whole("nodes", "devices_per_node"),
    "strategy.devices_per_node": _whole("devices_per_node", "nodes"),
    **{f"times.{name}": _named(FACTORS, _factor) for name in ("rate", "bandwidth", "latency")},
    "machine.nics": _among("machine.nics", powers(0, 4)),
    **{f"strategy.{key}": _degrees(key) for key in ("tensor", "pipeline", "spatial", "context")},
    "strategy.context_exchange": _named(strategy.CONTEXT_EXCHANGES),
    "strategy.microbatches": _among("strategy.microbatches", powers(0, 9)),
    "strategy.schedule": _named(strategy.SCHEDULES),
    "strategy.chunks": _among("strategy.chunks", (1, 2, 3, 4, 6, 8)),
    "strategy.stage_cut": _named(strategy.STAGE_CUTS),
    "strategy.pipeline_runtime": _named(strategy.PIPELINE_RUNTIMES),
    "strategy.sequence_parallel": _ticks,
    "strategy.tensor_pieces": _among("strategy.tensor_pieces", powers(0, 3)),
    "strategy.tensor_overlap": _named(strategy.TENSOR_OVERLAPS),
    "strategy.experts": _experts,
    "strategy.expert_exchange": _exchanges,
    "strategy.expert_wire": _named(strategy.EXPERT_WIRES, _format),
    "strategy.zero": _named(range(4)),
    "strategy.shards": _shards,
    "strategy.gather": _named(strategy.GATHERS),
    "strategy.zero_unit": _named(strategy.ZERO_UNITS),
    "strategy.recompute": _named(strategy.RECOMPUTES),
    "strategy.loss": _named(strategy.LOSSES),
    "strategy.offload": _named(strategy.OFFLOADS),
    "strategy.fused_attention": _named(strategy.FUSED),
    "strategy.batch": _among("strategy.batch", powers(0, 13)),
    "strategy.precision": _precisions,
    "strategy.optimizer": _named(strategy.OPTIMIZERS),
    "strategy.lora": _among(
        "strategy.lora", (0, 4, 8, 16, 64), lambda rank: f"rank {rank}" if rank else "none"
    ),
    "strategy.allreduce": _allreduces,
    "strategy.wire": _named(strategy.WIRES, _format),
    "strategy.overlap": _ticks,
    "strategy.bucket": _among(
        "strategy.bucket", BUCKETS, lambda b: show(b, "B") if b < 1e12 else "all at once"
    ),
    "run.epochs": _among("run.epochs", EPOCHS, "{:,g}".format),
    "dataset.name": lambda e: _entries("datasets", e.dataset.name),
    "storage.tier": lambda e: [("in memory", ""), *((name, name) for name in e.machine.storage)],
    "machine.node_mtbf": _among("machine.node_mtbf", MTBF, _age),
    "run.checkpoint_interval": _among(
        "run.checkpoint_interval", INTERVALS, lambda s: show(s, "s") if s else "none"
    ),
}


def _is_uneven(e: Experiment) -> bool:
    """Return whether stages of equal work are other stages than those of equally many blocks."""
    if e.strategy.pipeline == 1:
        return False
    ways = (replace(e, strategy=replace(e.strategy, stage_cut=cut)) for cut in strategy.STAGE_CUTS)
    return len(set(map(stage_cut, ways))) > 1


APPLIES: dict[str, Callable[[Experiment], Any]] = {
    "model.sequence": lambda e: "sequence" in e.model.options,
    **dict.fromkeys(("strategy.nodes", "machine.nics"), lambda e: e.machine.nodes > 1),
    "strategy.devices_per_node": lambda e: e.machine.devices_per_node > 1,
    "strategy.spatial": lambda e: any(n.traits.spatial == "windows" for n in e.model.layers),
    "strategy.context": lambda e: len(e.model.input_shape) == 1 and _attends(e),
    "strategy.context_exchange": lambda e: e.strategy.context > 1,
    "strategy.microbatches": lambda e: e.strategy.update == "synchronous",
    "strategy.schedule": lambda e: e.strategy.pipeline > 1,
    "strategy.stage_cut": _is_uneven,
    "strategy.pipeline_runtime": lambda e: e.strategy.pipeline > 1,
    "strategy.chunks": lambda e: e.strategy.schedule == "interleaved",
    **dict.fromkeys(
        ("strategy.sequence_parallel", "strategy.tensor_pieces"), lambda e: e.strategy.tensor > 1
    ),
    "strategy.tensor_overlap": lambda e: e.strategy.tensor > 1 and e.strategy.tensor_pieces > 1,
    "strategy.experts": _has_experts,
    "strategy.expert_exchange": _copies_once,
    "strategy.expert_wire": _sends_fp8,
    "strategy.zero": lambda e: replicas(e) > 1,
    "strategy.shards": lambda e: e.strategy.zero,
    "strategy.gather": lambda e: e.strategy.zero,
    "strategy.zero_unit": lambda e: e.strategy.zero == 3,
    "strategy.loss": lambda e: any(is_logits(layer) for layer in e.model.layers),
    "strategy.fused_attention": _attends,
    "strategy.lora": _adapts,
    **{f"strategy.{name}": lambda e: e.devices > 1 for name in ("allreduce", "overlap", "bucket")},
    "strategy.wire": lambda e: replicas(e) > 1 and e.strategy.update == "synchronous",
    "run.checkpoint_interval": lambda e: e.storage.tier,
}
TABLE = tomllib.loads((Path(__file__).parent / "static" / "controls.toml").read_text("utf-8"))
GROUPS = tuple(TABLE)
CONTROLS = tuple(Control(g, field, *row) for g in GROUPS for field, row in TABLE[g].items())
NAMED = {control.field: control for control in CONTROLS}
