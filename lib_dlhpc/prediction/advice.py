"""What to change next: the one change that shortens a run the most, or the fewest changes that make it fit.

Each candidate keeps the global batch, the precision and the formats of all that is sent, and so the training; each is
priced by predict(), and must fit.
"""

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.resplit import DEGREES, degree, resplit
from lib_dlhpc.prediction.step import predict
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import AUTO, EXPERT_EXCHANGES, RECOMPUTES
from lib_dlhpc.spec.units import format_quantity

Changes = dict[str, Any]
WORTH = 0.005  # of the time to train; less is no advice
MOST = 4  # changes to make a run fit
MOST_DOUBLINGS = 6  # of a degree, as on the explorer's controls
LOSSES = (
    "waiting for the slowest",
    "exposed communication",
    "pipeline bubble",
    "input stall",
    "checkpoint",
)


class Advice(NamedTuple):
    """A sentence on what is lost and what helps, and the fields to set; no fields where nothing better is known."""

    words: str
    label: str
    changes: Changes


def advise(p: Breakdown) -> Advice:
    """Return what to change next in a predicted run."""
    return _shorten(p) if fits(p) else _make_fit(p)


def fits(p: Breakdown) -> bool:
    """Return whether everything on the fullest device fits."""
    return held(p) <= float(p.experiment.machine.device.memory)


def held(p: Breakdown) -> float:
    """Return the bytes that the fullest device holds."""
    return float(sum(p.memory.values()))


def moves(e: Experiment) -> Iterator[tuple[str, Changes]]:
    """Yield candidates: a label and the fields that it sets. Not all are legal."""
    s = e.strategy
    if s.allreduce != AUTO:
        yield "allreduce: the cheapest for each size", {"strategy.allreduce": AUTO}
    if not s.overlap:
        yield "overlap gradients with backward", {"strategy.overlap": True}
    for factor, word in ((0.5, "half"), (0.25, "a quarter"), (2.0, "twice")):
        yield f"gradient buckets of {word} the size", {"strategy.bucket": float(s.bucket) * factor}
    for zero in range(int(s.zero) + 1, 4):
        yield f"ZeRO {zero}", {"strategy.zero": zero}
    for recompute in RECOMPUTES:
        if recompute != s.recompute:
            yield f"recompute: {recompute}", {"strategy.recompute": recompute}
    for exchange in EXPERT_EXCHANGES if int(s.experts) > 1 else ():
        if exchange != s.expert_exchange:
            yield f"expert exchange: {exchange}", {"strategy.expert_exchange": exchange}
    if int(s.pipeline) > 1:
        if s.schedule == "gpipe":
            yield "1F1B schedule", {"strategy.schedule": "1f1b"}
        if s.schedule != "zb-h1":
            yield (
                "zero-bubble schedule",
                {"strategy.schedule": "zb-h1", "strategy.chunks": 1, "strategy.offload": "none"},
            )
        chunks = 2 if s.schedule != "interleaved" else 2 * int(s.chunks)
        interleaved = {"strategy.schedule": "interleaved", "strategy.chunks": chunks}
        yield f"interleave {chunks} stages per device", interleaved
    for factor in (2, 4):
        micro = {"strategy.microbatches": int(s.microbatches) * factor}
        yield f"{micro['strategy.microbatches']} microbatches", micro
    yield from _splits(e)
    for pieces in (2 * int(s.tensor_pieces), 4 * int(s.tensor_pieces)) if int(s.tensor) > 1 else ():
        yield f"exchange in {pieces} pieces", {"strategy.tensor_pieces": pieces}
    for tier in e.machine.storage if e.storage.tier else ():
        if tier != e.storage.tier:
            yield f"read from {tier}", {"storage.tier": tier}


def _splits(e: Experiment) -> Iterator[tuple[str, Changes]]:
    """Yield other splits of the same devices, global batch and trained weights: what the explorer's controls set."""
    for field in DEGREES:
        now, name = degree(e, field), field.removeprefix("strategy.")
        if now == 1 and field in ("strategy.spatial", "strategy.context"):
            continue  # other layers and kernels: for who asks for them
        for to in (2**n for n in range(MOST_DOUBLINGS + 1)):
            changes = {field: to, **resplit(e, field, to)}
            if to != now and _same_training(e, changes):
                yield f"{name} parallelism {now} to {to}", changes


def _same_training(e: Experiment, changes: Changes) -> bool:
    """Return whether a split divides the devices, and keeps the global batch and the adapters."""
    replica = prod(int(changes[key]) for key in DEGREES)
    batch = int(changes["strategy.batch"]) * (int(e.devices) // replica)
    return (
        int(e.devices) % replica == 0
        and batch == int(e.global_batch)
        and "strategy.lora" not in changes
    )


def _priced(e: Experiment) -> Iterator[tuple[str, Changes, Breakdown]]:
    for label, changes in moves(e):
        try:
            yield label, changes, predict(e.set(changes))
        except SpecError:
            continue  # not legal here


def _shorten(p: Breakdown) -> Advice:
    now, terms = float(p.time_to_train), p.terms
    loss = max(LOSSES, key=lambda name: terms[name])
    share = terms[loss] / float(p.step_time)
    words = f"Largest loss: {loss}, {share:.1%} of the step."
    if share < WORTH:
        words = f"Nearly all of the step is computation: {1 - sum(terms[n] for n in LOSSES) / float(p.step_time):.1%}."
    fitting = [found for found in _priced(p.experiment) if fits(found[2])]
    if not fitting:
        return Advice(f"{words} No single change is known to help.", "", {})
    label, changes, best = min(fitting, key=lambda found: float(found[2].time_to_train))
    saved = 1 - float(best.time_to_train) / now
    if saved < WORTH:
        return Advice(f"{words} No single change saves more than {WORTH:.1%}.", "", {})
    more = held(best) - held(p)
    memory = (
        f", and {'takes' if more > 0 else 'frees'} {format_quantity(abs(more), 'B')} per device"
    )
    # The best change need not be the one against the largest loss.
    shorter = max(terms, key=lambda name: terms[name] - best.terms[name])
    words += " Try" if shorter == loss else f" More is gained by shortening {shorter}. Try"
    words += f": {label}. It saves {saved:.1%}{memory if abs(more) > 1e6 else ''}."
    return Advice(words, label, changes)


def _make_fit(p: Breakdown) -> Advice:
    """Take the change that frees the most memory, again and again, until the run fits."""
    capacity, largest = (
        float(p.experiment.machine.device.memory),
        max(p.memory, key=lambda n: float(p.memory[n])),
    )
    words = (
        f"Does not fit: the fullest device would hold {format_quantity(held(p), 'B')} of"
        f" {format_quantity(capacity, 'B')}, most of it {largest}."
    )
    labels: list[str] = []
    changes: Changes = {}
    here = p
    while not fits(here) and len(labels) < MOST:
        found = list(_priced(here.experiment))
        enough = [each for each in found if fits(each[2])]
        if enough:
            label, more, there = min(enough, key=lambda each: float(each[2].time_to_train))
        elif found:
            label, more, there = min(found, key=lambda each: held(each[2]))
        if not found or held(there) >= held(here):
            break
        labels, changes, here = [*labels, label], changes | more, there
    if not fits(here):
        return Advice(
            f"{words} No {MOST} changes are known to make it fit; use more devices.", "", {}
        )
    label = "; then ".join(labels)
    return Advice(
        f"{words} Try: {label}. It then holds {format_quantity(held(here), 'B')}.", label, changes
    )
