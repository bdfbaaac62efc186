"""A prediction as plain data and as a table to read in a terminal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.changes.gains import without_gain
from lib_dlhpc.prediction.changes.no_effect import without_effect
from lib_dlhpc.prediction.failures.resilience import in_words
from lib_dlhpc.prediction.limits.implausible import implausible
from lib_dlhpc.prediction.validation.trust import trust_dict, trust_words
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import exchange_in_words
from lib_dlhpc.spec.units import count, format_energy, format_plain
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.limits.fit import Remedy, Search


def as_dict(prediction: Breakdown) -> dict[str, Any]:
    """Return a scalar prediction as nested plain values in SI units, ready for JSON."""
    from lib_dlhpc.prediction.accuracy import accuracy_dict
    from lib_dlhpc.spec.plain import plain_tables

    low, high = prediction.step_time_bounds
    return {
        "experiment": plain_tables(prediction.experiment),
        "devices": int(prediction.experiment.devices),
        "global_batch": int(prediction.experiment.global_batch),
        "step_time": float(prediction.step_time),
        "step_time_bounds": [float(low), float(high)],
        "terms": {name: float(seconds) for name, seconds in prediction.terms.items()},
        "communication": {
            key: float(value) for key, value in prediction.communication._asdict().items()
        },
        "messages": {kind: float(cost.total) for kind, cost in prediction.messages.items()},
        "exposed": {kind: float(seconds) for kind, seconds in prediction.exposed.items()},
        "compute_scale": float(prediction.compute_scale),
        "throughput": float(prediction.throughput),
        "tokens": float(prediction.tokens),
        "model_rate": float(prediction.model_rate),
        "utilization": float(prediction.utilization),
        "efficiency": float(prediction.efficiency),
        "speedup": float(prediction.speedup),
        "hidden": float(prediction.hidden),
        "staleness": float(prediction.staleness),
        "server_load": float(prediction.server_load),
        "memory": {name: float(size) for name, size in prediction.memory.items()},
        "memory_total": float(prediction.memory_total),
        "memory_capacity": float(prediction.experiment.machine.device.memory),
        "fits": bool(prediction.fits),
        "walls": prediction.walls,
        "notes": [*prediction.experiment.warnings, *_notes(prediction)],
        "trust": trust_dict(prediction.experiment),
        "steps": int(prediction.steps),
        "time_to_train": float(prediction.time_to_train),
        "energy_of_a_step": {name: float(joules) for name, joules in prediction.energy.items()},
        "energy_to_train": float(prediction.energy_to_train),
        "carbon": float(prediction.carbon) if np.isfinite(prediction.carbon) else None,
        "price": float(prediction.price),
        "currency": prediction.experiment.machine.currency,
        "device_hours": float(prediction.device_hours),
        **accuracy_dict(prediction),
        **_with_failures(prediction),
    }


def as_text(
    prediction: Breakdown,
    explained: bool = False,
    bands: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """Return a scalar prediction as text; `explained` adds formulas, inputs and sources.

    bands: (low, high) s of "one step" and of terms, by name, where it is known what they may be off by.
    """
    known, e = bands or {}, prediction.experiment
    step = float(prediction.step_time)
    low, high = (show(float(bound), "s") for bound in prediction.step_time_bounds)
    each = "replica" if e.strategy.replica > 1 else "device"
    lines = [
        f"{e.model.name or e.model.family} on {e.machine.name or 'a machine'}:"
        f" {count(e.strategy.nodes, 'node')}, {count(e.devices, 'device')},"
        f" batch {int(e.global_batch):,} ({int(e.strategy.batch):,} per {each}),"
        f" {e.strategy.precision}, {exchange_in_words(e.strategy, e.training)}",
        "",
        f"  one step              {show(step, 's'):>10}   between {low} (all hidden) and {high} (nothing hidden)",
    ]
    lines += [f"{'':<37}90% band {_between(known['one step'])}"] if known else []
    lines += [
        f"    {name:<23} {show(float(seconds), 's'):>6}   {float(seconds) / step:6.1%}"
        + (f"   {_between(known[name])}" if name in known else "")
        for name, seconds in prediction.terms.items()
        if seconds
    ]
    total = float(prediction.communication.total)
    lines += [
        f"  all communication     {show(total, 's'):>10}   of which"
        f" {_share(float(prediction.hidden)) if total else 'nothing'} is hidden",
        f"  throughput            {show(float(prediction.throughput), ''):>10}  samples/s{_rates(prediction)}",
        f"  efficiency            {float(prediction.efficiency):>10.1%}   speedup {float(prediction.speedup):,.1f}"
        f" on {count(e.devices, 'device')}",
        *_by_kind(prediction),
        *_staleness(prediction),
        f"  memory of a device    {show(float(prediction.memory_total), 'B'):>10}"
        f"   of {show(e.machine.device.memory, 'B')}",
        f"  time to train         {show(float(prediction.time_to_train), 's'):>10}"
        f"   {_steps(int(prediction.steps))}{tokens_words(e)}",
        *_costs(prediction),
        *_to_accuracy(prediction),
        *_failures(prediction),
        f"  TRUST  {trust_words(e, step)}",
    ]
    lines += [f"  NOTE  {note}" for note in _notes(prediction)]
    lines += [f"  WALL  {wall}" for wall in prediction.walls]
    lines += _explained(prediction) if explained else []
    return "\n".join(lines)


def _notes(prediction: Breakdown) -> list[str]:
    experiment = prediction.experiment
    return [*implausible(experiment), *without_effect(experiment), *without_gain(prediction)]


def _rates(prediction: Breakdown) -> str:
    """Return tokens/s of a language model, and the utilization of a device."""
    tokens, each = float(prediction.tokens), show(float(prediction.model_rate), "FLOP/s")
    found = f", {show(tokens, '')} tokens/s" if tokens else ""
    return f"{found}; {each} per device, {float(prediction.utilization):.1%} MFU"


def _explained(prediction: Breakdown) -> list[str]:
    from lib_dlhpc.prediction.reports.explain import explain

    lines = []
    for item in explain(prediction):
        lines += ["", f"{item.name} = {item.value}", f"  formula  {item.formula}"]
        lines += [f"    {name}: {value}  [{source}]" for name, value, source in item.inputs]
        lines += [f"  source   {item.source}", f"  assumes  {item.assumes}"]
    return lines


def _costs(prediction: Breakdown) -> list[str]:
    """Return energy and device-hours of a run as lines; emissions and price where the machine states theirs."""
    machine, price = prediction.experiment.machine, float(prediction.price)
    energy = format_energy(float(prediction.energy_to_train))
    lines = [f"  energy to train       {energy:>10}   modeled"]
    if intensity := float(machine.carbon_intensity):
        emitted = show(1000 * float(prediction.carbon), "g")
        lines.append(f"  carbon                {emitted:>10}   CO2e at {intensity:g} g/kWh")
    paid = f", {format_plain(price)} {machine.currency}" if price else ""
    cost, _, unit = show(float(prediction.device_hours), "device-hours").rpartition(" ")
    return [*lines, f"  cost                  {cost:>10}   {unit}{paid}"]


def _to_accuracy(prediction: Breakdown) -> list[str]:
    if not prediction.experiment.run.target:
        return []
    from lib_dlhpc.prediction.accuracy import accuracy_lines

    return accuracy_lines(prediction)


def _with_failures(prediction: Breakdown) -> dict[str, Any]:
    """Return what failures do to a run, where the machine states how often its nodes fail."""
    found = prediction.resilience
    if np.isinf(found.mtbf):
        return {}
    numbers = ("mtbf", "expected_time", "goodput", "failures", "young", "daly", "best")
    values = {name: float(getattr(found, name)) for name in numbers}
    # JSON knows no infinity: null is a run that never ends.
    return {"resilience": {name: x if np.isfinite(x) else None for name, x in values.items()}}


def _failures(prediction: Breakdown) -> list[str]:
    """Return the expected time with failures, and how often to save, as lines."""
    found = prediction.resilience
    if np.isinf(found.mtbf):
        return []
    time = in_words(float(found.expected_time))
    lines = [
        f"  with failures         {time:>10}   one every"
        f" {show(float(found.mtbf), 's')}; {float(found.goodput):.1%} of the time becomes training"
    ]
    if not prediction.experiment.run.checkpoint_interval:
        lines.append(f"  checkpoints                 none   {_no_checkpoints(prediction)}")
    if prediction.experiment.storage.tier:
        lines.append(
            f"  best interval         {show(float(found.best), 's'):>10}   between checkpoints;"
            f" {float(found.best_goodput):.1%} would become training"
        )
    return lines


def _no_checkpoints(prediction: Breakdown) -> str:
    """Return what a failure costs a run without checkpoints, and which fields give it some."""
    run = prediction.experiment
    tiers = " or ".join(run.machine.storage)
    missing = "run.checkpoint_interval"
    if not run.storage.tier:
        missing += " and storage.tier" + f" ({tiers})" * bool(tiers)
    return f"each failure restarts the whole run: set {missing}"


def _by_kind(prediction: Breakdown) -> list[str]:
    """Return a line for each kind of message of a split network, and the fullest moment."""
    if not prediction.experiment.strategy.is_split:
        return []
    lines = [
        f"    {kind:<19} {show(float(cost.total), 's'):>10}   {show(float(prediction.exposed[kind]), 's')} exposed"
        + ": a late one makes other stages wait too" * _held_up(prediction, kind)
        for kind, cost in prediction.messages.items()
        if cost.total
    ]
    if prediction.experiment.strategy.offload != "none":
        need = prediction.offloading
        lines.append(
            f"  offloaded             {show(float(prediction.offloaded), 'B'):>10}   needs"
            f" {show(need.required, 'B/s')}, has {show(need.there, 'B/s')}"
        )
    fullest = max(prediction.moments, key=lambda moment: moment.total)
    return [*lines, f"  fullest               {fullest.when}"]


def _held_up(prediction: Breakdown, kind: str) -> bool:
    """Whether ranks wait longer for these messages than all messages of a rank take."""
    return float(prediction.exposed[kind]) > float(prediction.messages[kind].total) * (1 + 1e-9)


def configurations_text(search: "Search") -> str:
    """Return configurations that a search has found to fit, and what it left out, one per line.

    The fastest on the devices of the run come first, then the fastest on more.
    """
    found = _worthwhile(search.ordered())
    found = sorted(found, key=lambda way: "strategy.nodes" in way.changes)  # stable
    ways = [*found[:3], *[way for way in found[3:] if "strategy.nodes" in way.changes][:1]]
    if all(way.untrained for way in ways):  # one that can be tried here as well
        ways += [way for way in found if not way.untrained][:1]
    lines = [
        f"  fits with             {way.words}: {show(float(way.prediction.step_time), 's')} per step,"
        f" {show(float(way.prediction.memory_total), 'B')} per device"
        + ("; dlhpc run cannot train it" if way.untrained else "")
        for way in ways
    ]
    lines = lines or [
        f"  fits with             none of {count(search.tried, 'configuration')} tried; `dlhpc plan --set"
        " strategy.nodes=N` searches all layouts of N nodes"
    ]
    if search.left:
        lines.append(
            f"  searched              {count(search.tried, 'configuration')}; not tried: {search.left:,}, with more"
            " changes at once or more nodes; `dlhpc plan` searches all layouts"
        )
    return "\n".join(lines)


def _worthwhile(ways: list["Remedy"]) -> list["Remedy"]:
    """Return ways, the fastest first, without those that change more than a faster one and hold no less."""
    return [
        way
        for number, way in enumerate(ways)
        if not any(
            faster.changes.items() < way.changes.items()
            and faster.prediction.memory_total <= way.prediction.memory_total
            for faster in ways[:number]
        )
    ]


def _staleness(prediction: Breakdown) -> list[str]:
    if prediction.experiment.strategy.update != "asynchronous":
        return []
    return [
        f"  staleness             {int(prediction.staleness):>10,}   updates on average; servers and links"
        f" {float(prediction.server_load):.0%} busy"
    ]


def tokens_words(experiment: Experiment) -> str:
    """Return how many tokens a run of a language model trains on, each epoch counted."""
    if not experiment.model.reads_tokens:
        return ""
    samples = float(experiment.dataset.trained) * float(experiment.run.epochs)
    return f", {show(samples * experiment.model.input_shape[0], '')} tokens"


def _between(band: tuple[float, float]) -> str:
    return f"{show(band[0], 's')} to {show(band[1], 's')}"


def _share(fraction: float) -> str:
    return f"{fraction:.0%}"


def _steps(number: int) -> str:
    return count(number, "step") if number < 10**12 else f"{format_plain(number)} steps"
