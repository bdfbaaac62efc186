"""What makes a run fit in memory, and what it costs: recompute, shard, split, accumulate, offload, or more devices.

The global batch stays. Each way is predicted; those that fit are returned, the quickest or the cheapest
first. One change alone comes first, then pairs, then more devices: what one way does not achieve, another
may complete.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import inf
from time import monotonic
from typing import Any

from lib_dlhpc.layout import untrained
from lib_dlhpc.prediction.breakdown import Breakdown, predict
from lib_dlhpc.prediction.what_if import alone
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment

ORDERS = ("step_time", "device_hours")
MOST = 400  # predictions


@dataclass(frozen=True)
class Way:
    """A change of an experiment with which it fits."""

    words: str
    changes: dict[str, Any]
    prediction: Breakdown

    @property
    def untrained(self) -> str:
        """Why it has a price but is not trained here; "" if `dlhpc run` takes it."""
        return untrained(self.prediction.experiment)


def ways_to_fit(experiment: Experiment, order: str = "step_time", most: int = MOST) -> list[Way]:
    """Return what makes a scalar experiment fit, ordered by `order`; it is there itself if it fits.

    order: step_time, or device_hours of the run, which differ where more devices are among the ways. At
    most `most` are tried. Raises SpecError for another order.
    """
    if order not in ORDERS:
        raise SpecError(f"order = {order!r}: legal: {', '.join(ORDERS)}.")
    search = Search(experiment)
    search.run(most)
    return search.ordered(order)


class Search:
    """A search for configurations that fit, which can be stopped at any time; what it found is kept.

    A change without effect, as ZeRO on one replica, makes no way of its own: of several with the same
    numbers the simplest is found.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.found: list[Way] = []
        self.tried = 0
        self._base = alone(experiment)
        self._known: set[tuple[float, ...]] = set()
        distinct: dict[frozenset[tuple[str, Any]], tuple[str, dict[str, Any]]] = {}
        for words, changes in _tries(self._base):
            distinct.setdefault(frozenset(changes.items()), (words, changes))
        self._todo = list(reversed(distinct.values()))

    @property
    def left(self) -> int:
        """How many configurations have not been tried."""
        return len(self._todo)

    def run(self, most: int, seconds: float = inf) -> None:
        """Predict configurations, the simple ones first, until so many are tried or so much time is over."""
        end = monotonic() + seconds
        while self._todo and self.tried < most and monotonic() < end:
            words, changes = self._todo.pop()
            self.tried += 1
            try:
                prediction = predict(self._base.set(changes))
            except SpecError:  # not a legal combination, or a network that cannot be split so
                continue
            if prediction.fits and _numbers(prediction) not in self._known:
                self._known.add(_numbers(prediction))
                self.found.append(Way(words, dict(changes), prediction))

    def ordered(self, order: str = "step_time") -> list[Way]:
        """Return what was found, the quickest (or, by device_hours, the cheapest) first."""
        return sorted(self.found, key=lambda way: float(getattr(way.prediction, order)))


def _numbers(prediction: Breakdown) -> tuple[float, ...]:
    """Return what tells a way from another: devices, seconds, bytes."""
    told = prediction.experiment.devices, prediction.step_time, prediction.memory_total
    return tuple(float(f"{float(number):.9g}") for number in told)


def _tries(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield changes with their words, the simple ones first."""
    yield "as it is", {}
    kinds = [list(kind(experiment)) for kind in (_recompute, _shards, _parts, _splits, _offload)]
    for kind in kinds:
        yield from kind
    for several in (2, 3):
        for chosen in combinations(kinds, several):
            yield from _together(experiment, chosen)
    for words, changes in _more(experiment):
        yield words, changes
        for kind in kinds[:3]:
            for other, more in kind:
                yield f"{words}, {other}", {**more, **changes}


def _together(
    experiment: Experiment, kinds: tuple[list[tuple[str, dict[str, Any]]], ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    first, *others = kinds
    for words, changes in first:
        if not others:
            yield words, changes
            continue
        for more, added in _together(experiment, tuple(others)):
            yield f"{words}, {more}", {**changes, **added}


def _recompute(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    if experiment.strategy.recompute == "full":
        return
    attention = any(layer.kind == "attention" for layer in experiment.model.layers)
    if attention and experiment.strategy.recompute == "none":
        yield "attention made again", {"strategy.recompute": "selective"}
    yield "activations made again", {"strategy.recompute": "full"}


def _shards(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    for level in range(int(experiment.strategy.zero) + 1, 4):
        yield f"ZeRO {level}", {"strategy.zero": level}


def _parts(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    """More microbatches, up to one sample each."""
    strategy = experiment.strategy
    now, batch = int(strategy.microbatches), int(strategy.batch)
    for many in sorted({now * 4, now * 16, batch}):
        if now < many <= batch:
            yield f"{many} microbatches", {"strategy.microbatches": many}


def _splits(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    """More devices for each replica, and fewer replicas; the global batch stays."""
    strategy, devices = experiment.strategy, int(experiment.devices)
    for name in ("tensor", "pipeline", "spatial"):
        now = int(getattr(strategy, name))
        for factor in (2, 4, 8, 16):
            if devices % (int(strategy.replica) * factor):
                continue
            batch = int(strategy.batch) * factor
            changes = {
                f"strategy.{name}": now * factor,
                "strategy.batch": batch,
                "strategy.data": 0,
            }
            if name == "pipeline":
                parts = min(batch, 4 * now * factor * max(1, int(strategy.microbatches)))
                changes["strategy.microbatches"] = parts
            yield f"{name} parallelism over {now * factor}", changes


def _offload(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    words = {
        "activations": "activations offloaded",
        "all": "activations, weights and optimiser state offloaded",
    }
    left = {"none": ("activations", "all"), "activations": ("all",), "all": ()}
    for word in left[experiment.strategy.offload]:
        yield words[word], {"strategy.offload": word}


def _more(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    """More nodes, each replica split over them."""
    strategy, machine = experiment.strategy, experiment.machine
    for factor in (2, 4, 8):
        nodes = int(strategy.nodes) * factor
        if nodes > machine.nodes:
            return
        for name in ("tensor", "pipeline", "spatial"):
            now = int(getattr(strategy, name)) * factor
            changes = {"strategy.nodes": nodes, f"strategy.{name}": now, "strategy.data": 0}
            if name == "pipeline":
                changes["strategy.microbatches"] = min(int(strategy.batch), 4 * now)
            yield f"{nodes} nodes, {name} parallelism over {now}", changes
