"""simulate(experiment): training steps of synchronous data parallelism, rank by rank.

A rank computes forward, then backward, out of which its gradient buckets come one after another; they
are exchanged in that order by the schedule of the experiment's allreduce, one at a time, while backward
goes on (or after it, without overlap); then it updates, and waits for its next batch if that is late.

Jitter: the compute time of a rank in a step is its mean times a factor from a normal distribution with
mean 1 and standard deviation machine.jitter, never below 0. Blocks of a bucket are taken as equal: a
block of a real bucket can be one number longer. A step writes no checkpoint.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import calibration, compute
from lib_dlhpc.costs.input import input_time
from lib_dlhpc.costs.network import network_of
from lib_dlhpc.costs.work import Work, check, device_work
from lib_dlhpc.schedules import ALGORITHMS, Schedule, schedule
from lib_dlhpc.simulate import rounds
from lib_dlhpc.spec.errors import SpecError, suggest
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Timeline, columns, join

FIDELITIES = ("rounds", "events")
Floats: TypeAlias = NDArray[np.float64]
# (bytes, when each rank starts) -> when each rank is done
Exchange: TypeAlias = Callable[[float, Floats], Floats]


def simulate(
    experiment: Experiment, fidelity: str = "rounds", seed: int | None = None, steps: int = 1
) -> Timeline:
    """Play `steps` training steps on every rank and return what happened.

    fidelity: "rounds" plays the exchange round by round without contention beyond the NICs; "events"
    lets its messages share the links of the machine. seed: of the jitter; by default run.seed. The
    same seed gives the same bytes. Raises SpecError for arrays, and for what is not modelled.
    """
    seed = experiment.run.seed if seed is None else seed
    _check(experiment, fidelity, {"seed": (seed, 0), "steps": (steps, 1)})
    rng = np.random.default_rng(seed)
    jitter = float(experiment.machine.jitter)
    scale = calibration.compute_scale(experiment, _bucket_costs)
    work = device_work(experiment, scale)
    device, ranks = experiment.machine.device, int(experiment.devices)
    update = float(
        scale * compute.update_time(experiment.model, device, experiment.strategy.optimizer)
    )
    exchange = _exchange(experiment, fidelity)
    fetch = float(input_time(experiment))
    parts: list[Timeline] = []
    start, fetched = np.zeros(ranks), 0.0
    for _ in range(steps):
        factor = np.maximum(rng.normal(1.0, jitter, ranks), 0.0) if jitter else np.ones(ranks)
        step = _step(start, factor, work, update, exchange, bool(experiment.strategy.overlap))
        # One batch is fetched ahead, from when the one before is there and its buffer is free.
        fetching = np.maximum(start, fetched)
        ready = fetching + fetch
        parts += _rows(step, start, factor, work, ranks)
        if fetch:
            parts += _input_rows(step, fetching, ready, ranks)
        start, fetched = np.maximum(step.end, ready), float(ready.max())
    return join(parts).sorted()


@dataclass(frozen=True)
class _Step:
    """When things happen in one step: s, arrays of shape (ranks,) or (buckets, ranks)."""

    forward_end: Floats
    backward_end: Floats
    joined: Floats  # when a rank joins the exchange of a bucket
    exchanged: Floats
    exchange_end: Floats  # of the last bucket; the end of backward where nothing is exchanged
    end: Floats


def _step(
    start: Floats, factor: Floats, work: Work, update: float, exchange: Exchange, overlap: bool
) -> _Step:
    forward_end = start + factor * work.forward
    backward_end = forward_end + factor * work.backward
    network_free = start if overlap else backward_end
    joined, exchanged = [], []
    for size, ready in zip(work.sizes, work.ready, strict=True):
        if not size or len(start) == 1:
            continue
        joined.append(np.maximum(forward_end + factor * ready, network_free))
        network_free = exchange(float(size), joined[-1])
        exchanged.append(network_free)
    exchange_end = np.maximum(backward_end, network_free)
    empty = np.empty((0, len(start)))
    return _Step(
        forward_end,
        backward_end,
        np.array(joined) if joined else empty,
        np.array(exchanged) if exchanged else empty,
        exchange_end,
        exchange_end + factor * update,
    )


def _rows(step: _Step, start: Floats, factor: Floats, work: Work, ranks: int) -> list[Timeline]:
    rank, count = np.arange(ranks), len(work.sizes)
    words = [f"backward {k}" for k in range(1, count + 1)] + ["backward to the input"]
    row = partial(columns, rank=rank, ranks=ranks, source="simulated")
    ready = step.forward_end + factor * np.reshape(work.ready, (-1, 1))
    # Backward ends where its sum says; the last segment may be longer than nothing by rounding only.
    ready = np.minimum(ready, step.backward_end)
    edges = np.vstack([step.forward_end, ready, step.backward_end])
    segments = [k for k in range(count + 1) if k < count or (edges[k + 1] > edges[k]).any()]
    parts = [
        row(
            stream="compute", kind="forward", name=0, names=["forward"], start=start, stop=edges[0]
        ),
        row(
            stream="compute",
            kind="backward",
            name=np.reshape(segments, (-1, 1)),
            names=words,
            start=edges[segments],
            stop=edges[np.array(segments) + 1],
        ),
    ]
    if len(step.joined):
        sent = work.sizes[work.sizes > 0]
        parts.append(
            row(
                stream="communication",
                kind="communication",
                name=np.arange(len(sent)).reshape(-1, 1),
                names=[f"bucket {k}" for k in range(1, len(sent) + 1)],
                start=step.joined,
                stop=step.exchanged,
                bytes=sent.reshape(-1, 1),
            )
        )
    waits = np.flatnonzero(step.exchange_end > step.backward_end)
    parts.append(
        columns(
            rank=waits,
            stream="compute",
            kind="wait",
            name=0,
            names=["wait for the exchange"],
            start=step.backward_end[waits],
            stop=step.exchange_end[waits],
            ranks=ranks,
            source="simulated",
        )
    )
    parts.append(
        row(
            stream="compute",
            kind="update",
            name=0,
            names=["update"],
            start=step.exchange_end,
            stop=step.end,
        )
    )
    return parts


def _input_rows(step: _Step, fetching: Floats, ready: Floats, ranks: int) -> list[Timeline]:
    late = np.flatnonzero(ready > step.end)
    return [
        columns(
            rank=np.arange(ranks),
            stream="input",
            kind="input",
            name=0,
            names=["fetch the next batch"],
            start=fetching,
            stop=ready,
            ranks=ranks,
            source="simulated",
        ),
        columns(
            rank=late,
            stream="compute",
            kind="input",
            name=0,
            names=["wait for input"],
            start=step.end[late],
            stop=ready[late],
            ranks=ranks,
            source="simulated",
        ),
    ]


def _exchange(experiment: Experiment, fidelity: str) -> Exchange:
    """Return the exchange of one bucket: one schedule serves all, its elements being as large as needed."""
    plan = _plan(experiment)
    if fidelity == "events":
        from lib_dlhpc.simulate import events

        def by_events(size: float, arrival: Floats) -> Floats:
            return np.asarray(
                events.finish_times(
                    plan,
                    experiment.machine,
                    int(experiment.strategy.nodes),
                    int(experiment.devices_per_node),
                    size / plan.elements,
                    arrival,
                )
            )

        return by_events
    kept, network = rounds.program(plan), network_of(experiment)
    return lambda size, arrival: rounds.finish_times(kept, network, size / plan.elements, arrival)


def _plan(experiment: Experiment) -> Schedule:
    """Return the schedule of the allreduce on as few elements as cut evenly into all its blocks."""
    ranks, algorithm = int(experiment.devices), experiment.strategy.allreduce
    options: dict[str, Any] = {}
    if "node_size" in inspect.signature(ALGORITHMS[algorithm]).parameters:
        options["node_size"] = int(experiment.devices_per_node)
    return schedule(algorithm, ranks, ranks << (ranks.bit_length() - 1), **options)


def _bucket_costs(experiment: Experiment, work: Work) -> Floats:
    """Return the seconds on the network of each bucket when all ranks start together."""
    exchange = _exchange(experiment, "rounds")
    start = np.zeros(int(experiment.devices))
    return np.array([exchange(float(size), start).max() if size else 0.0 for size in work.sizes])


def _check(experiment: Experiment, fidelity: str, numbers: dict[str, tuple[Any, int]]) -> None:
    if fidelity not in FIDELITIES:
        raise SpecError(
            f"fidelity = {fidelity!r}: expected one of {', '.join(FIDELITIES)}."
            f"{suggest(fidelity, FIDELITIES)}"
        )
    for name, (value, least) in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise SpecError(f"{name} = {value!r}: expected a whole number, at least {least}.")
    for name in ("dataset", "machine", "strategy", "storage", "calibration", "run"):
        for field in _arrays(getattr(experiment, name), name):
            raise SpecError(
                f"{field}: an array; a simulation is of one experiment, `sweep` predicts many."
            )
    check(experiment)


def _arrays(noun: Any, path: str) -> Iterator[str]:
    """Yield the dotted names of the fields that hold arrays, those of nouns within included."""
    for name, value in vars(noun).items():
        if isinstance(value, np.ndarray) and value.ndim:
            yield f"{path}.{name}"
        elif is_dataclass(value):
            yield from _arrays(value, f"{path}.{name}")
