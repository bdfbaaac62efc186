"""simulate(experiment): training steps, rank by rank.

What a rank does is its program (lib_dlhpc/parallel): forward, backward, which fills gradient buckets one after
another, their exchange in that order, the update. Then the rank waits for its next batch if that is late. A batch is
fetched during the step before it, or further ahead (input.py). Asynchronous updates: see asynchronous.py.

Jitter: the compute time of a rank in a step is its mean times a factor from a normal distribution with
mean 1 and standard deviation machine.jitter, never below 0. Blocks of a bucket are taken as equal: a
block of a real bucket can be one number longer. A step writes no checkpoint unless `checkpoint` asks for it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from lib_dlhpc import parallel
from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs import calibration, roofline, split_calibration
from lib_dlhpc.costs.device_work import DeviceWork, check_precision, device_work
from lib_dlhpc.costs.input import input_time
from lib_dlhpc.costs.network import joined
from lib_dlhpc.costs.wire_format import cast_time, search_time
from lib_dlhpc.errors import SpecError, check_counts, listed
from lib_dlhpc.program import Collective, Program, Transfer
from lib_dlhpc.simulation.conditions import Conditions, StepProgress
from lib_dlhpc.simulation.input import supply
from lib_dlhpc.simulation.program_rounds import simulate_rounds
from lib_dlhpc.simulation.program_terms import measure_rounds
from lib_dlhpc.simulation.ranked import ranked_exchange
from lib_dlhpc.simulation.size import MOST_MESSAGES, check_messages, check_size
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.simulation.watchdog import Progress
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.given import check_given
from lib_dlhpc.timeline import Measured, Timeline

if TYPE_CHECKING:
    from lib_dlhpc.simulation.asynchronous import Worker
    from lib_dlhpc.simulation.simulation import Traffic

FIDELITIES = ("rounds", "events")
# (step, rank) -> s to fetch the batch after it
Fetch: TypeAlias = Callable[[int, int], float]
# step -> s to write a checkpoint after it; 0: there is none
Saving: TypeAlias = Callable[[int], float]


def simulate(
    experiment: Experiment,
    fidelity: str = "rounds",
    seed: int | None = None,
    steps: int = 1,
    *,
    speed: ArrayLike = 1.0,
    background: "Sequence[Traffic]" = (),
    input: Fetch | None = None,
    checkpoint: Saving | None = None,
    messages: int = 0,
    progress: StepProgress | None = None,
    message_limit: int = MOST_MESSAGES,
) -> Timeline:
    """Simulate `steps` training steps on every rank and return the Timeline.

    With local updates, steps are rounded up so that the last one ends with an average. With asynchronous
    ones every rank takes that many, and pushes and pulls are rows (see staleness.py).

    fidelity: "rounds" simulates each exchange round by round, slowed down by links between switches as
        predicted; "events" lets its messages share the links of the machine.
    seed: of the jitter; by default run.seed. The same seed gives the same bytes.
    speed: of each rank, (ranks,) or one for all: 1 is normal, 0.5 takes twice as long to compute.
    background: others' traffic on the links, with "events" only.
    input, checkpoint: models of the seconds to fetch a batch and to write a checkpoint, see Fetch and Saving,
        in place of the storage tier's constant time and of no checkpoint. All ranks are idle for a
        checkpoint. Where [storage] has workers or prefetch, synchronous ranks that hold the whole network
        get their batches from readers that queue for the storage, see input.py.
    messages: how many messages to record, a row each, the first to arrive; with "events" only.
    progress: called with simulated seconds, messages delivered and messages in all (in rounds: passes and
        exchanges of buckets), after each bucket or each few thousand events, and at the end.
    message_limit: the most messages that are simulated one by one, with "events" or asynchronous updates.

    Raises SpecError for arrays, for what is not modeled, and for more than is simulated in minutes
    (size.py); Cancelled when `progress` returns False.
    """
    check_given(experiment)
    seed = experiment.run.seed if seed is None else seed
    sent = check(experiment, fidelity, seed, steps, messages, message_limit, background)
    speeds = _speed(experiment, speed)
    conditions = conditions_of(experiment, seed, steps, speeds, input, checkpoint)
    if experiment.strategy.update == "asynchronous":
        return _asynchronous(experiment, conditions, fidelity, background, progress)
    programs = parallel.steps(experiment, compute_scale(experiment))
    if fidelity == "rounds":
        return simulate_rounds(programs, conditions, progress)
    count = None if progress is None else (lambda time, done: progress(time, done, sent))
    return _in_events(experiment, programs, conditions, background, messages, count)


def _asynchronous(experiment: Experiment, conditions: Conditions, *how: Any) -> Timeline:
    """Simulate asynchronous steps; how: the other arguments of asynchronous.serve_experiment."""
    from lib_dlhpc.simulation import asynchronous, staleness

    worker = worker_of(experiment)
    served = asynchronous.serve_experiment(experiment, conditions, worker, *how)
    return staleness.rows(conditions, worker, served, asynchronous.gradient_bytes(experiment))


def _in_events(
    experiment: Experiment,
    programs: Sequence[Program],
    conditions: Conditions,
    background: "Sequence[Traffic]",
    messages: int,
    progress: Progress | None,
) -> Timeline:
    from lib_dlhpc.costs.platform import platform
    from lib_dlhpc.simulation.program_events import simulate_events

    nodes, devices = int(experiment.strategy.nodes), int(experiment.devices_per_node)
    on = platform(*joined(experiment.calibrated_machine, nodes, devices))
    return simulate_events(programs, on, conditions, background, messages, progress)


def simulate_terms(
    experiment: Experiment,
    seed: int | None = None,
    steps: int = 1,
    *,
    progress: StepProgress | None = None,
) -> Measured:
    """Simulate as `simulate` does in rounds, and return the terms of every rank without rows.

    Memory does not grow with microbatches or steps: 3,072 ranks with 512 microbatches take 100 MB. Asynchronous
    steps have rows all the same.
    """
    if experiment.strategy.update == "asynchronous":
        return measure(experiment, simulate(experiment, "rounds", seed, steps, progress=progress))
    seed = experiment.run.seed if seed is None else seed
    check(experiment, "rounds", seed, steps, rows=False)
    conditions = conditions_of(experiment, seed, steps, np.ones(int(experiment.devices)))
    programs = parallel.steps(experiment, compute_scale(experiment))
    return measure_rounds(programs, conditions, progress)


def worker_of(experiment: Experiment) -> "Worker":
    """Return what a worker of asynchronous updates computes in a step."""
    from lib_dlhpc.simulation.asynchronous import Worker

    scale, device = compute_scale(experiment), experiment.machine.device
    work = device_work(experiment, scale)
    update = roofline.update_time(experiment.model, device, experiment.strategy.optimizer)
    return Worker(float(work.forward), float(work.backward), float(scale * update))


def conditions_of(
    experiment: Experiment,
    seed: int,
    steps: int,
    speed: Floats,
    input: Fetch | None = None,
    checkpoint: Saving | None = None,
) -> Conditions:
    """Return the conditions of all steps, with the jitter of every rank in every step."""
    strategy, jitter, ranks = experiment.strategy, float(experiment.machine.jitter), len(speed)
    steps = -(-steps // int(strategy.local_steps)) * int(strategy.local_steps)
    drawn = np.random.default_rng(seed).normal(1.0, jitter, (steps, ranks))
    fetch = np.full((steps, ranks), float(input_time(experiment)))
    if input is not None:
        fetch[:] = [[input(step, rank) for rank in range(ranks)] for step in range(steps)]
    saving = np.zeros(steps)
    if checkpoint is not None:
        saving[:] = [checkpoint(step) for step in range(steps)]
    for name, seconds in (("input", fetch), ("checkpoint", saving)):
        wrong = ~((seconds >= 0) & (seconds < np.inf))
        if wrong.any():
            raise SpecError(f"{name} returned {seconds[wrong][0]:g}: expected s, 0 or more.")
    whole = strategy.update == "synchronous" and not strategy.is_split and input is None
    readers = supply(experiment, steps, seed) if whole and experiment.storage.tier else None
    return Conditions(np.maximum(drawn, 0.0) / speed, fetch, saving, speed, readers)


def _speed(experiment: Experiment, speed: ArrayLike) -> Floats:
    given, ranks = np.asarray(speed, dtype=np.float64), int(experiment.devices)
    if given.shape not in ((), (ranks,)):
        raise SpecError(
            f"speed: shape {given.shape}; expected one number, or one for each of {ranks} ranks."
        )
    wrong = ~((given > 0) & (given < np.inf))
    if wrong.any():
        raise SpecError(f"speed = {given[wrong].min():g}: expected a number above 0 for each rank.")
    return np.broadcast_to(given, (ranks,))


def compute_scale(experiment: Experiment) -> Any:
    """Return measured over roofline compute time; 1.0 without a measured rate."""
    if not experiment.strategy.is_split:
        return calibration.compute_scale(experiment, _bucket_costs)
    return split_calibration.compute_scale(experiment, compute_scale, _quiet_step)


def _quiet_step(experiment: Experiment, scale: float) -> float:
    """Return the seconds of a step without jitter or input."""
    none = np.zeros((1, int(experiment.devices)))
    quiet = Conditions(none + 1, none, np.zeros(1), none[0] + 1)
    return measure_rounds(parallel.steps(experiment, scale), quiet).step_time


def _bucket_costs(experiment: Experiment, work: DeviceWork) -> Floats:
    """Return the seconds that the exchange of each bucket takes when all ranks start together."""
    step = parallel.program(experiment)
    exchange, start = ranked_exchange(step), np.zeros(step.shape)
    in_order = (*step.stages[0][0].last.variants[0].instructions, *(row[0] for row in step.end))
    found, seconds, overlapped = list[float](), 0.0, 0.0
    for what in in_order:
        if isinstance(what, Collective):
            seconds += float(exchange(0, what, start).max())
            if what.layers:  # others come before a bucket
                found, seconds = [*found, seconds], 0.0
        elif isinstance(what, Transfer):
            overlapped += what.seconds
    if not experiment.overlaps:
        return np.array([sum(found) + seconds + overlapped])
    casts = 2 * cast_time(experiment, work.sizes) + search_time(experiment, work.sizes)
    costs = iter(found)
    return np.array([next(costs) if size else 0.0 for size in work.sizes]) + casts


def check(
    experiment: Experiment,
    fidelity: str,
    seed: int,
    steps: int,
    messages: int = 0,
    message_limit: int = MOST_MESSAGES,
    background: "Sequence[Traffic]" = (),
    rows: bool = True,
) -> int:
    """Return how many messages `simulate` would follow one by one. Raises SpecError where it would not simulate.

    rows: whether the timeline is wanted, whose size is limited.
    """
    if fidelity not in FIDELITIES:
        head = f"fidelity = {fidelity!r}:"
        raise SpecError(listed(head, fidelity, FIDELITIES, "expected one of"))
    check_counts(0, seed=seed, messages=messages)
    check_counts(steps=steps, message_limit=message_limit)
    for name in ("dataset", "machine", "strategy", "storage", "calibration", "run"):
        for field in _arrays(getattr(experiment, name), name):
            raise SpecError(
                f"{field}: an array; a simulation needs one experiment, `sweep` predicts many."
            )
    for name, given in (("background", background), ("messages", messages)):
        if given and fidelity != "events":
            raise SpecError(
                f"{name}: fidelity {fidelity!r} does not simulate single messages; legal with 'events' only."
            )
    check_precision(experiment)
    check_size(experiment, int(steps), rows)
    return check_messages(experiment, fidelity, steps, message_limit)


def _arrays(noun: Any, path: str) -> Iterator[str]:
    """Yield the dotted names of the fields that hold arrays, those of nouns within included."""
    for name, value in vars(noun).items():
        if isinstance(value, np.ndarray) and value.ndim:
            yield f"{path}.{name}"
        elif is_dataclass(value):
            yield from _arrays(value, f"{path}.{name}")
