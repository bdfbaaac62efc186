"""A pipeline simulated on a machine: each rank executes its instruction stream, messages share the links.

A send does not block: the message is in flight while the rank continues. Messages to one rank follow one
another, those to different ranks share the port. A receive waits until all of it has arrived. At the end all
wait for each other (the flush, after which a synchronous step updates). The idle time of a rank is the
bubble of the pipeline, as it would be with free messages, and the time of messages that cannot be hidden.

Sources of the laws it obeys: Huang et al., "GPipe" (2019); Narayanan et al., "Efficient large-scale
language model training on GPU clusters" (2021), section 2.2.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lib_dlhpc.costs.platform import platform
from lib_dlhpc.errors import SpecError
from lib_dlhpc.program.calls import BACKWARD, FORWARD, WEIGHTS, phase_of
from lib_dlhpc.program.intervals import NAMES
from lib_dlhpc.schedules.pipeline import Forward, Instruction, Pipeline, Receive, Send
from lib_dlhpc.schedules.pipeline_proof import idle_times
from lib_dlhpc.simulation.messages import Recorder
from lib_dlhpc.simulation.simulation import Message, Process, Simulation, Traffic
from lib_dlhpc.simulation.watchdog import Progress
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.timeline import Timeline, from_rows, join, mark_bubble

# What is sent, by the kind of data, its microbatch, the stage that made it, from rank, to rank.
MessageKey: TypeAlias = tuple[str, int, int, int, int]


def simulate_pipeline(
    pipeline: Pipeline,
    machine: Machine,
    nodes: int,
    devices_per_node: int,
    forward: ArrayLike,
    backward: ArrayLike,
    message_bytes: ArrayLike = 0.0,
    *,
    speed: ArrayLike = 1.0,
    background: Sequence[Traffic] = (),
    weights: ArrayLike = 0.5,
    messages: int = 0,
    progress: Progress | None = None,
) -> Timeline:
    """Simulate all microbatches of a pipeline once and return the Timeline.

    forward, backward: s of each stage for a microbatch, (stages,) or one for all; there are ranks * chunks stages.
    message_bytes: B of activations (and gradients) between stages, (stages - 1,) or one for all; (stages,) where
    microbatches enter from both ends. speed, background: as in `simulate`. messages: how many to record, a row each,
    the first to arrive. weights: the share of backward that computes weight gradients, of each stage or one for all,
    where the pipeline does so apart. progress: see Simulation.run.
    Rows: forward and backward, named by microbatch; bubble and wait, for what another rank makes.
    Raises SpecError for sizes that do not fit; DeadlockError where streams wait for ever; Cancelled.
    """
    on = platform(machine, nodes, devices_per_node)
    if pipeline.ranks != on.ranks:
        raise SpecError(
            f"{nodes} nodes x {devices_per_node} devices: {on.ranks} ranks, but the pipeline"
            f" {pipeline.name} is for {pipeline.ranks}."
        )
    stages = pipeline.ranks * pipeline.chunks
    ahead, back = _per("forward", forward, stages), _per("backward", backward, stages)
    later = _per("weights", weights, stages) * pipeline.splits_backward
    sizes = _per("message_bytes", message_bytes, stages - (pipeline.directions == 1))
    recorder = Recorder(messages)
    sim = Simulation(on, speed, record=recorder if messages else None)
    sim.background(background)
    posted = _messages(sim, pipeline, sizes)
    rows: list[tuple[Any, ...]] = []
    seconds = {FORWARD: ahead, BACKWARD: back * (1 - later), WEIGHTS: back * later}
    for rank, stream in enumerate(pipeline.streams):
        sim.start(_rank(sim, pipeline, rank, stream, posted, seconds, rows))
    rows += _flush(rows, pipeline.ranks, sim.run(progress))
    timeline = from_rows(rows, on.ranks, "simulated")
    speeds = np.broadcast_to(np.asarray(speed, dtype=np.float64), on.ranks)[_rank_of(pipeline)]
    passes = ((ahead / speeds).tolist(), (back / speeds).tolist(), later.tolist())
    idle = idle_times(pipeline, *passes)
    marked = mark_bubble(timeline, np.array(idle), timeline.where("compute", "wait"))
    return join([marked, recorder.timeline(on.ranks)]).sorted()


def _rank_of(pipeline: Pipeline) -> NDArray[np.int64]:
    return np.arange(pipeline.ranks * pipeline.chunks) % pipeline.ranks


def kept(timeline: Timeline) -> NDArray[np.int64]:
    """Return for each rank the peak count of stored activations: forward adds one, the last pass after it frees one."""
    table = timeline.sorted()
    frees = table.where("compute", "backward")
    of_weights = np.array([name.startswith(NAMES["weights"]) for name in table.names])[table.name]
    change = (
        table.where("compute", "forward") * 1
        - (frees & of_weights if of_weights.any() else frees) * 1
    )
    of_rank = (change[table.rank == rank] for rank in range(table.ranks))
    return np.array([np.cumsum(mine).max(initial=0) for mine in of_rank])


def _rank(
    sim: Simulation,
    pipeline: Pipeline,
    rank: int,
    stream: Sequence[Instruction],
    messages: dict[MessageKey, Message],
    seconds: Mapping[str, NDArray[np.float64]],
    rows: list[tuple[Any, ...]],
) -> Process:
    """What a rank does, from its first instruction to its last; it writes down what takes time."""
    for step in stream:
        since = sim.env.now
        if isinstance(step, Send):
            message = messages[step.what, step.microbatch, step.stage, rank, step.peer]
            sim.post(message, f"{step.what} {step.microbatch}")
        elif isinstance(step, Receive):
            message = messages[step.what, step.microbatch, step.stage, step.peer, rank]
            what = f"the {step.what} of microbatch {step.microbatch} from stage {step.stage}"
            yield sim.exchange(rank, [], [message], f"receiving {what}")
            if sim.env.now > since:
                waited = f"wait for {step.what} {step.microbatch}"
                rows.append((rank, "compute", "wait", waited, since, sim.env.now))
        else:
            stage = step.chunk * pipeline.ranks + rank
            kind = "forward" if isinstance(step, Forward) else "backward"
            name = f"{NAMES[phase_of(step)]} {step.microbatch}"
            if pipeline.chunks > 1:
                name += f", chunk {step.chunk}"
            yield sim.compute(rank, float(seconds[phase_of(step)][stage]))
            rows.append((rank, "compute", kind, name, since, sim.env.now))


def _messages(
    sim: Simulation, pipeline: Pipeline, sizes: NDArray[np.float64]
) -> dict[MessageKey, Message]:
    """Return a message for everything that some rank sends or receives."""
    wanted: dict[MessageKey, None] = {}
    for rank, stream in enumerate(pipeline.streams):
        for step in stream:
            if isinstance(step, Send | Receive):
                ends = (rank, step.peer) if isinstance(step, Send) else (step.peer, rank)
                wanted[step.what, step.microbatch, step.stage, *ends] = None
    if not wanted:
        return {}
    what, _, stage, source, target = zip(*wanted, strict=True)
    # An activation crosses the boundary after the stage that made it, a gradient the one before.
    boundary = [
        pipeline.next_to(place, -1) if kind == "gradient" else place
        for kind, place in zip(what, stage, strict=True)
    ]
    made = sim.messages(source, target, sizes[np.clip(boundary, 0, len(sizes) - 1)])
    return dict(zip(wanted, made, strict=True))


def _flush(rows: list[tuple[Any, ...]], ranks: int, end: float) -> list[tuple[Any, ...]]:
    """Return the waits of ranks that finish before the last one."""
    through = dict.fromkeys(range(ranks), 0.0)
    for rank, *_, stop in rows:
        through[rank] = max(through[rank], stop)
    name = "wait for the others"
    return [(r, "compute", "wait", name, stop, end) for r, stop in through.items() if stop < end]


def _per(name: str, value: ArrayLike, count: int) -> NDArray[np.float64]:
    given = np.asarray(value, dtype=np.float64)
    if given.shape not in ((), (count,)):
        raise SpecError(f"{name}: shape {given.shape}; expected one number, or {count}.")
    wrong = ~((given >= 0) & (given < np.inf))
    if wrong.any():
        raise SpecError(f"{name} = {given[wrong].min():g}: expected a number, 0 or more.")
    return np.broadcast_to(given, (count,))
