"""simulate(experiment): training steps of data parallelism, rank by rank.

A rank computes forward, then backward, which produces its gradient buckets one after another; they
are exchanged in that order by the schedule of the experiment's allreduce, one at a time, while backward
goes on (or after it, without overlap); then it updates, and waits for its next batch if that is late. A
batch is fetched while the step before it goes on, or further ahead (input.py). Updates that do not keep
step so: see local.py and asynchronous.py.

Jitter: the compute time of a rank in a step is its mean times a factor from a normal distribution with
mean 1 and standard deviation machine.jitter, never below 0. Blocks of a bucket are taken as equal: a
block of a real bucket can be one number longer. A step writes no checkpoint unless `checkpoint` asks for it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from lib_dlhpc.costs import calibration, compute, split_calibration
from lib_dlhpc.costs.input import input_time
from lib_dlhpc.costs.network import network_of
from lib_dlhpc.costs.work import Work, check_precision, device_work
from lib_dlhpc.errors import SpecError, suggest
from lib_dlhpc.parallel import program
from lib_dlhpc.simulation import local, program_rounds, rounds
from lib_dlhpc.simulation.clock import Clock, Exchange, Floats, Load, StepProgress, simulate_rounds
from lib_dlhpc.simulation.input import supply
from lib_dlhpc.simulation.measure import measure
from lib_dlhpc.simulation.messages import Recorder
from lib_dlhpc.simulation.plans import allreduce_plans
from lib_dlhpc.simulation.program_terms import measure_rounds
from lib_dlhpc.simulation.rows import rows
from lib_dlhpc.simulation.size import MOST_MESSAGES, check_messages, check_size
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Measured, Timeline, join

if TYPE_CHECKING:
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

    With local updates they are rounded up so that the last one ends with an average; with asynchronous
    ones every rank takes that many, and pushes and pulls are rows (see staleness.py).
    fidelity: "rounds" simulates the exchange round by round without contention beyond the NICs; "events"
    lets its messages share the links of the machine. seed: of the jitter; by default run.seed. The
    same seed gives the same bytes.
    speed: of each rank, (ranks,) or one for all: 1 is normal, 0.5 takes twice as long to compute.
    background: others' traffic on the links; messages: how many messages to record, a row each, the
    first to arrive; both with "events" only.
    input, checkpoint: models of the seconds that a batch takes to fetch and a checkpoint to write, see
    Fetch and Saving, in place of the storage tier's constant time and of no checkpoint. All ranks
    are idle for a checkpoint. Where [storage] has workers or prefetch, ranks with the whole network
    that keep step get their batches from readers that queue for the storage, see input.py.
    progress: called with simulated seconds, messages delivered and messages in all (passes and messages of
    a split network in rounds), after each bucket or each few thousand events, and at the end.
    message_limit: how many messages are followed one by one at most, with "events" or asynchronous updates.
    Raises SpecError for arrays, for what is not modeled, and for more than is simulated in minutes
    (size.py); Cancelled when `progress` returns False.
    """
    seed = experiment.run.seed if seed is None else seed
    sent = check(experiment, fidelity, seed, steps, messages, message_limit, background)
    factors, strategy = _speed(experiment, speed), experiment.strategy
    if strategy.is_split:
        conditions = _conditions(experiment, seed, steps, factors, input, checkpoint)
        return _split(experiment, fidelity, conditions, background, messages, progress, sent)
    every = int(strategy.local_steps)  # 1 unless updates are local
    load = load_of(experiment, seed, -(-steps // every) * every, factors, input, checkpoint)
    if strategy.update == "asynchronous":
        from lib_dlhpc.simulation import asynchronous, staleness

        served = asynchronous.serve_experiment(experiment, load, fidelity, background, progress)
        return staleness.rows(load, served, float(load.work.sizes.sum()))
    return _replicas(experiment, fidelity, load, factors, background, messages, progress)


def simulate_terms(
    experiment: Experiment,
    seed: int | None = None,
    steps: int = 1,
    *,
    progress: StepProgress | None = None,
) -> Measured:
    """Simulate as `simulate` does in rounds, and return the terms of every rank without rows.

    Of a split network memory does not grow with microbatches or steps: 3,072 ranks with 512 microbatches take 100 MB.
    """
    if not experiment.strategy.is_split:
        return measure(experiment, simulate(experiment, "rounds", seed, steps, progress=progress))
    seed = experiment.run.seed if seed is None else seed
    check(experiment, "rounds", seed, steps, rows=False)
    scale = split_calibration.compute_scale(experiment, compute_scale, _quiet_step)
    speed = np.ones(int(experiment.devices))
    conditions = _conditions(experiment, seed, steps, speed, None, None)
    return measure_rounds(program(experiment, scale), *conditions, progress)


def _replicas(
    experiment: Experiment,
    fidelity: str,
    load: Load,
    speed: Floats,
    background: "Sequence[Traffic]",
    messages: int,
    progress: StepProgress | None,
) -> Timeline:
    """Simulate replicas of the whole network."""
    load, draw = _drawn(experiment, load)
    plan_of, recorder = allreduce_plans(experiment), Recorder(messages)
    clocks: Iterable[Clock]
    if fidelity == "events" and len(load.sent):
        from lib_dlhpc.simulation.platform import platform
        from lib_dlhpc.simulation.processes import simulate_events

        sizes = int(experiment.strategy.nodes), int(experiment.devices_per_node)
        on, record = platform(experiment.calibrated_machine, *sizes), recorder if messages else None
        clocks = simulate_events(load, plan_of, on, speed, background, record, progress)
    else:
        number = [plan_of(float(size)).messages for size in load.work.sizes[load.sent]]
        clocks = simulate_rounds(load, _exchange(experiment, speed), number, progress)
    parts = [part for clock in clocks for part in draw(load, clock)]
    return join([*parts, recorder.timeline(load.ranks)]).sorted()


def _drawn(
    experiment: Experiment, load: Load
) -> tuple[Load, Callable[[Load, Clock], list[Timeline]]]:
    """Return the load, its local steps joined, and the function that draws a step's rows."""
    if experiment.strategy.update == "local":
        return local.together(load, int(experiment.strategy.local_steps))
    return load, rows


def load_of(
    experiment: Experiment,
    seed: int,
    steps: int,
    speed: Floats,
    input: Fetch | None,
    checkpoint: Saving | None,
) -> Load:
    """Return the load to simulate, with the jitter of every rank in every step."""
    scale = compute_scale(experiment)
    update = compute.update_time(
        experiment.model, experiment.machine.device, experiment.strategy.optimizer
    )
    factor, fetch, saving = _conditions(experiment, seed, steps, speed, input, checkpoint)
    step_by_step = experiment.strategy.update == "synchronous" and input is None
    return Load(
        device_work(experiment, scale),
        float(scale * update),
        bool(experiment.overlap),
        factor,
        fetch,
        saving,
        supply(experiment, steps, seed) if step_by_step and experiment.storage.tier else None,
    )


def _conditions(
    experiment: Experiment,
    seed: int,
    steps: int,
    speed: Floats,
    input: Fetch | None,
    checkpoint: Saving | None,
) -> tuple[Floats, Floats, Floats]:
    """Return factors of compute time and s to fetch a batch, (steps, ranks), and s to save, (steps,)."""
    jitter, ranks = float(experiment.machine.jitter), len(speed)
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
    return np.maximum(drawn, 0.0) / speed, fetch, saving


def _split(
    experiment: Experiment,
    fidelity: str,
    conditions: tuple[Floats, Floats, Floats],
    background: "Sequence[Traffic]",
    messages: int,
    progress: StepProgress | None,
    sent: int,
) -> Timeline:
    """Simulate a network that is split over ranks; `sent`: total messages, as events."""
    scale = split_calibration.compute_scale(experiment, compute_scale, _quiet_step)
    step = program(experiment, scale)
    if fidelity == "rounds":
        return program_rounds.simulate_rounds(step, *conditions, progress)
    from lib_dlhpc.simulation.platform import platform
    from lib_dlhpc.simulation.program_events import simulate_events

    nodes, each = int(experiment.strategy.nodes), int(experiment.devices_per_node)
    on = platform(experiment.calibrated_machine, nodes, each)
    count = None if progress is None else (lambda time, done: progress(time, done, sent))
    return simulate_events(step, on, *conditions, background, messages, count)


def _quiet_step(experiment: Experiment, scale: float) -> float:
    """Return the seconds of a step of a split network without jitter."""
    none = np.zeros((1, int(experiment.devices)))
    return measure_rounds(program(experiment, scale), none + 1, none, np.zeros(1)).step_time


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


def _exchange(experiment: Experiment, speed: ArrayLike = 1.0) -> Exchange:
    """Return the exchange of one bucket: a schedule serves all sizes for which it is chosen."""
    network, plan_of = network_of(experiment), allreduce_plans(experiment)
    kept: dict[str, rounds.Program] = {}

    def exchange(size: float, arrival: Floats) -> Floats:
        schedule = plan_of(size)
        if schedule.name not in kept:
            kept[schedule.name] = rounds.program(schedule)
        program = kept[schedule.name]
        return rounds.finish_times(program, network, size / program.elements, arrival, speed=speed)

    return exchange


def compute_scale(experiment: Experiment) -> Any:
    """Return measured over roofline compute time of plain data parallelism; 1.0 without a measured rate."""
    return calibration.compute_scale(experiment, _bucket_costs)


def _bucket_costs(experiment: Experiment, work: Work) -> Floats:
    """Return the seconds on the network of each bucket when all ranks start together."""
    exchange = _exchange(experiment)
    start = np.zeros(int(experiment.devices))
    return np.array([exchange(float(size), start).max() if size else 0.0 for size in work.sizes])


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
        raise SpecError(
            f"fidelity = {fidelity!r}: expected one of {', '.join(FIDELITIES)}."
            f"{suggest(fidelity, FIDELITIES)}"
        )
    for name, value, least in (
        ("seed", seed, 0),
        ("steps", steps, 1),
        ("messages", messages, 0),
        ("message_limit", message_limit, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise SpecError(f"{name} = {value!r}: expected a whole number, at least {least}.")
    for name in ("dataset", "machine", "strategy", "storage", "calibration", "run"):
        for field in _arrays(getattr(experiment, name), name):
            raise SpecError(
                f"{field}: an array; a simulation is of one experiment, `sweep` predicts many."
            )
    for name, given in (("background", background), ("messages", messages)):
        if given and fidelity != "events":
            raise SpecError(
                f"{name}: fidelity {fidelity!r} knows no single message; legal with 'events' only."
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
