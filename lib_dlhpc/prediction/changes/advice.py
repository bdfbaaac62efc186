"""What to change next: the one change that shortens a run the most, or the fewest changes that let it run.

Each candidate keeps the global batch, the precision and the formats of all that is sent, and so the training. Each is
predicted as it would be applied, a measured compute time included, and must exceed no limit.
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from math import isinf, prod
from typing import Any, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.changes.resplit import DEGREES, degree, interleavable, resplit
from lib_dlhpc.prediction.limits.exceeded_limits import exceeds_more, stopping
from lib_dlhpc.prediction.step import predict
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import AUTO, EXPERT_EXCHANGES, RECOMPUTES
from lib_dlhpc.spec.units import HOUR, format_quantity

Changes = dict[str, Any]
Apply = Callable[[Changes], Experiment]
Candidate = tuple[str, Changes, Breakdown]
Clock = Callable[[Breakdown], float]
Rank = Callable[[Breakdown], Any]  # less is better; None for what is out of the question
WORTH = 0.005  # of the time to train; less is no advice
MUCH = 0.1  # of the time to train: worth one change more
MOST = 4  # changes to make a run fit
ENDLESS = 1e-3  # goodput: with less, a run is never done
MOST_DOUBLINGS = 6  # of a degree, as on the explorer's controls
INTERVALS = (600.0, 1800.0, HOUR, 4 * HOUR)  # s between checkpoints
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


def searched(p: Breakdown, apply: Apply) -> Generator[None, None, Advice]:
    """Look for what to change next, and return it; yield before each prediction, so that a page can do others first."""
    if not fits(p):
        return (yield from _make_fit(p, apply))
    if walls := stopping(p):
        return (yield from _lift(p, apply, walls))
    return (yield from _save(p, apply)) or (yield from _shorten(p, apply))


def run_time(p: Breakdown) -> float:
    """Return the s of the run, failures included where nodes fail."""
    if isinf(p.experiment.machine.node_mtbf):
        return float(p.time_to_train)
    return float(p.resilience.expected_time)


def endless(p: Breakdown) -> bool:
    """Return whether failures come so often that the run hardly advances."""
    return float(p.time_to_train) < ENDLESS * run_time(p)


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
    yield from _schedules(e)
    for many in _microbatches(e):
        yield f"{many} microbatches", {"strategy.microbatches": many}
    yield from _splits(e)
    for pieces in (2 * int(s.tensor_pieces), 4 * int(s.tensor_pieces)) if int(s.tensor) > 1 else ():
        yield f"exchange in {pieces} pieces", {"strategy.tensor_pieces": pieces}
    for tier in e.machine.storage if e.storage.tier else ():
        if tier != e.storage.tier:
            yield f"read from {tier}", {"storage.tier": tier}


def _schedules(e: Experiment) -> Iterator[tuple[str, Changes]]:
    s = e.strategy
    if int(s.pipeline) == 1:
        return
    if s.schedule == "gpipe":
        yield "1F1B schedule", {"strategy.schedule": "1f1b"}
    if s.schedule != "zb-h1":
        alone = {"strategy.chunks": 1, "strategy.offload": "none"}
        yield "zero-bubble schedule", {"strategy.schedule": "zb-h1", **alone}
    chunks = 2 if s.schedule != "interleaved" else 2 * int(s.chunks)
    many = interleavable(s.microbatches, s.pipeline)
    if many == int(s.microbatches) or int(s.batch) % many == 0:
        interleaved = {"strategy.schedule": "interleaved", "strategy.chunks": chunks}
        yield (
            f"interleave {chunks} stages per device",
            {**interleaved, "strategy.microbatches": many},
        )


def _microbatches(e: Experiment) -> list[int]:
    """Return numbers of microbatches near half, twice and four times the present one; of equal size."""
    now, batch = int(e.strategy.microbatches), int(e.strategy.batch)
    equal = [n for n in range(1, batch + 1) if batch % n == 0]
    fewer = [n for n in equal if n < now and 2 * n <= now]
    more = [min((n for n in equal if n >= f * now), default=now) for f in (2, 4)]
    return sorted({*fewer[-1:], *more} - {now})


def _splits(e: Experiment) -> Iterator[tuple[str, Changes]]:
    """Yield other splits of the same devices, global batch and trained weights: what the explorer's controls set."""
    for field in DEGREES:
        if degree(e, field) > 1 or field not in ("strategy.spatial", "strategy.context"):
            # Spatial and context parallelism need layers and kernels of their own: advised only where they are in use.
            yield from _splits_of(e, field)


def _splits_of(e: Experiment, field: str) -> Iterator[tuple[str, Changes]]:
    now, name = degree(e, field), field.removeprefix("strategy.")
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


def _best(
    p: Breakdown, apply: Apply, candidates: Iterator[tuple[str, Changes]], rank: Rank
) -> Generator[None, None, Candidate | None]:
    """Return the first of least rank of those that are legal and exceed no limit that `p` keeps, memory apart.

    At most two are held at a time: a prediction of a large network takes memory.
    """
    best, least = None, None
    for label, changes in candidates:
        yield
        try:
            there = predict(apply(changes))
        except SpecError:
            continue  # not legal here
        if exceeds_more(there, p) or (own := rank(there)) is None:
            continue
        if best is None or own < least:
            best, least = (label, changes, there), own
    return best


def _save(p: Breakdown, apply: Apply) -> Generator[None, None, Advice | None]:
    """Take the best checkpoints where there are none and failures take much of the run; None elsewhere."""
    lost = 1 - float(p.time_to_train) / run_time(p)
    if p.experiment.run.checkpoint_interval or lost < MUCH:
        return None

    def rank(there: Breakdown) -> float | None:
        return run_time(there) if fits(there) and not endless(there) else None

    found = yield from _best(p, apply, _checkpoints(p.experiment), rank)
    part = f"{lost:.0%}" if lost < 0.995 else "nearly all"
    words = f"Failures cost {part} of the run, because each one restarts it from the beginning."
    if not found:
        none = f"{words} No checkpoint on this machine is known to help; a run on fewer nodes fails less often."
        return Advice(none, "", {}) if endless(p) else None
    label, changes, best = found
    words = f"{words} Try: {label}. The run then takes {format_quantity(run_time(best), 's')}."
    return Advice(words, label, changes)


def _checkpoints(e: Experiment) -> Iterator[tuple[str, Changes]]:
    """Yield intervals between checkpoints, on the run's tier or else on each of the machine."""
    for tier in (e.storage.tier,) if e.storage.tier else e.machine.storage:
        for interval in INTERVALS:
            label = f"a checkpoint every {format_quantity(interval, 's')} on {tier}"
            yield label, {"run.checkpoint_interval": interval, "storage.tier": tier}


def _shorten(p: Breakdown, apply: Apply) -> Generator[None, None, Advice]:
    seconds = _clock(p)
    now, terms = seconds(p), p.terms
    loss = max(LOSSES, key=lambda name: terms[name])
    share = terms[loss] / float(p.step_time)
    words = f"Largest loss: {loss}, {share:.1%} of the step."
    if share < WORTH:
        computing = 1 - sum(terms[n] for n in LOSSES) / float(p.step_time)
        words = f"Computation takes nearly all of the step: {computing:.1%}."
    found = yield from _best(p, apply, moves(p.experiment), _if_it_fits(seconds))
    if not found:
        return Advice(f"{words} No single change is known to help.", "", {})
    label, changes, best = found
    saved = 1 - seconds(best) / now
    if saved < WORTH:
        return Advice(f"{words} No single change saves more than {WORTH:.1%}.", "", {})
    more = held(best) - held(p)
    memory = (
        f", and {'takes' if more > 0 else 'frees'} {format_quantity(abs(more), 'B')} per device"
    )
    # The best change need not be the one against the largest loss.
    shorter = max(terms, key=lambda name: terms[name] - best.terms[name])
    words += " Try" if shorter == loss else f" Shortening {shorter} gains more. Try"
    words += f": {label}. It saves {saved:.1%}{memory if abs(more) > 1e6 else ''}."
    return Advice(words, label, changes)


def _clock(p: Breakdown) -> Clock:
    """Return what the time of a run is here: what a page shows, unless it never ends."""
    return (lambda run: float(run.time_to_train)) if endless(p) else run_time


def _if_it_fits(seconds: Clock) -> Rank:
    return lambda there: seconds(there) if fits(there) else None


def _lift(p: Breakdown, apply: Apply, walls: list[str]) -> Generator[None, None, Advice]:
    """Take the fastest change with which the run exceeds no limit."""
    seconds = _clock(p)

    def rank(there: Breakdown) -> float | None:
        return None if stopping(there) else seconds(there)

    found = yield from _best(p, apply, moves(p.experiment), rank)
    if not found:
        return Advice(f"{walls[0]} No single change is known to help.", "", {})
    return Advice(f"{walls[0]} Try: {found[0]}.", *found[:2])


def _make_fit(p: Breakdown, apply: Apply) -> Generator[None, None, Advice]:
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
    here, seconds = p, _clock(p)
    while not fits(here) and len(labels) < MOST:
        after = partial(_after, apply, changes)
        best = yield from _best(here, after, moves(here.experiment), _least_or_fastest(seconds))
        if best is None or held(best[2]) >= held(here):
            break
        labels, changes, here = [*labels, best[0]], changes | best[1], best[2]
    if further := (yield from _faster_split(p, apply, here, len(labels))):
        labels, changes, here = [further[0]], further[1], further[2]
    if not fits(here):
        return Advice(
            f"{words} No {MOST} changes are known to make it fit; use more devices.", "", {}
        )
    label = "; then ".join(labels)
    took = "" if endless(here) else f" and trains in {format_quantity(seconds(here), 's')}"
    words += f" Try: {label}. It then holds {format_quantity(held(here), 'B')}{took}."
    return Advice(words, label, changes)


def _after(apply: Apply, changes: Changes, more: Changes) -> Experiment:
    return apply(changes | more)


def _least_or_fastest(seconds: Clock) -> Rank:
    """Rank by time where it fits, after that by what is held."""

    def rank(there: Breakdown) -> tuple[bool, float]:
        fit = fits(there)
        return not fit, seconds(there) if fit else held(there)

    return rank


def _faster_split(
    p: Breakdown, apply: Apply, here: Breakdown, changed: int
) -> Generator[None, None, Candidate | None]:
    """Return the fastest split in both tensor and pipeline that fits, where it is worth a second change."""
    seconds = _clock(p)
    best = yield from _best(p, apply, _both_splits(p.experiment), _if_it_fits(seconds))
    if best is None or not fits(here) or changed > 2:
        return best
    return best if seconds(best[2]) < (1 - MUCH) * seconds(here) else None


def _both_splits(e: Experiment) -> Iterator[tuple[str, Changes]]:
    """Yield splits that differ in the degrees of both tensor and pipeline parallelism."""
    tensor, pipeline = "strategy.tensor", "strategy.pipeline"
    for first, one in _splits_of(e, tensor):
        try:
            there = e.set(one)
        except SpecError:
            continue
        for second, two in _splits_of(there, pipeline):
            yield f"{first}; then {second}", one | two
