"""Configurations that fit in memory, and their cost: recompute, shard, split, accumulate, offload, or more devices.

The global batch is constant. Each configuration is predicted; those that fit are returned, the fastest or the
cheapest first. Single changes are tried first, then pairs, then more devices.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import inf
from time import monotonic
from typing import Any

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.layout import untrained
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.step import predict
from lib_dlhpc.prediction.what_if import alone
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import EARLY_STOP, Strategy

ORDERS = ("step_time", "device_hours")
MOST = 400  # predictions
MOST_PARTS = 4096  # microbatches of a configuration that is tried


@dataclass(frozen=True)
class Remedy:
    """A change of an experiment that makes it fit."""

    words: str
    changes: dict[str, Any]
    prediction: Breakdown

    @property
    def untrained(self) -> str:
        """Why it is predicted but not trained here; "" if `dlhpc run` trains it."""
        return untrained(self.prediction.experiment)


def ways_to_fit(experiment: Experiment, order: str = "step_time", most: int = MOST) -> list[Remedy]:
    """Return configurations of a scalar experiment that fit, ordered by `order`; itself included if it fits.

    order: step_time, or device_hours of the run, which differ if some have more devices. At
    most `most` are tried. Raises SpecError for another order.
    """
    if order not in ORDERS:
        raise SpecError(listed(f"order = {order!r}:", order, ORDERS))
    search = Search(experiment)
    search.run(most)
    return search.ordered(order)


class Search:
    """A search for configurations that fit, which can be stopped at any time; `found` has the results so far.

    Of several configurations with the same numbers, such as ZeRO on one replica, only the simplest is found.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.found: list[Remedy] = []
        self.tried = 0
        self._base = alone(experiment)
        self._known: set[tuple[float, ...]] = set()
        distinct: dict[frozenset[tuple[str, Any]], tuple[str, dict[str, Any]]] = {}
        for words, changes in _tries(self._base):
            distinct.setdefault(frozenset(changes.items()), (words, changes))
        self._todo = list(reversed(distinct.values()))

    @property
    def left(self) -> int:
        """The number of configurations that have not been tried."""
        return len(self._todo)

    def run(self, most: int, seconds: float = inf) -> None:
        """Predict configurations, the simple ones first, until `most` are tried or `seconds` have passed."""
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
                self.found.append(Remedy(words, dict(changes), prediction))

    def ordered(self, order: str = "step_time") -> list[Remedy]:
        """Return the configurations found, the fastest (or, by device_hours, the cheapest) first."""
        return sorted(self.found, key=lambda way: float(getattr(way.prediction, order)))


def _numbers(prediction: Breakdown) -> tuple[float, ...]:
    """Return the numbers that distinguish configurations: devices, seconds, bytes."""
    numbers = prediction.experiment.devices, prediction.step_time, prediction.memory_total
    return tuple(float(f"{float(number):.9g}") for number in numbers)


def _tries(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield changes with their words, the simple ones first."""
    yield "as it is", {}
    all_kinds = (_recompute, _shards, _parts, _splits, _experts, _offload)
    kinds = [list(kind(experiment)) for kind in all_kinds]
    for kind in kinds:
        yield from kind
    for several in (2, 3):
        for chosen in combinations(kinds, several):
            yield from _combined(experiment, chosen)
    for words, changes in _more(experiment):
        yield words, changes
        for kind in kinds[:3]:
            for other, more in kind:
                yield f"{words}, {other}", {**more, **changes}


def _combined(
    experiment: Experiment, kinds: tuple[list[tuple[str, dict[str, Any]]], ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    first, *others = kinds
    for words, changes in first:
        if not others:
            yield words, changes
            continue
        for more, added in _combined(experiment, tuple(others)):
            yield f"{words}, {more}", {**changes, **added}


def _recompute(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    if experiment.strategy.recompute in ("full", EARLY_STOP):  # which store the same
        return
    attention = any(layer.traits.selective for layer in experiment.model.layers)
    if attention and experiment.strategy.recompute == "none":
        yield "attention recomputed", {"strategy.recompute": "selective"}
    yield "activations recomputed", {"strategy.recompute": "full"}


def _shards(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    for level in range(int(experiment.strategy.zero) + 1, 4):
        yield f"ZeRO {level}", {"strategy.zero": level}


def _parts(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    """More microbatches, up to one sample each where these are few enough to be predicted at once."""
    strategy = experiment.strategy
    now, batch = int(strategy.microbatches), int(strategy.batch)
    for many in sorted({now * 4, now * 16, batch}):
        if now < many <= min(batch, MOST_PARTS):
            yield f"{many} microbatches", {"strategy.microbatches": many}


def _splits(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    """More devices for each replica, and fewer replicas; the global batch stays the same."""
    strategy, devices = experiment.strategy, int(experiment.devices)
    for name in _degrees(strategy):
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


def _experts(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    """Experts sharded over more replicas; illegal numbers are left out where they are predicted."""
    if experiment.model.has_experts:
        for many in (2, 4, 8, 16, 32, 64):
            if many > int(experiment.strategy.experts):
                yield f"experts over {many} replicas", {"strategy.experts": many}


def _degrees(strategy: Strategy) -> tuple[str, ...]:
    """Return the ways to split a network; a sequence is split only where a microbatch is one sequence."""
    sequence = ("context",) if strategy.microbatches >= strategy.batch else ()
    return ("tensor", "pipeline", "spatial", *sequence)


def _offload(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    words = {
        "activations": "activations offloaded",
        "all": "activations, weights and optimizer state offloaded",
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
        for name in _degrees(strategy):
            now = int(getattr(strategy, name)) * factor
            changes = {"strategy.nodes": nodes, f"strategy.{name}": now, "strategy.data": 0}
            if name == "pipeline":
                changes["strategy.microbatches"] = min(int(strategy.batch), 4 * now)
            yield f"{nodes} nodes, {name} parallelism over {now}", changes
