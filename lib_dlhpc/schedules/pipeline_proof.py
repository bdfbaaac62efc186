"""Pipelines simulated symbolically: timeline, bubble, stored activations, and the proof.

A rank executes its instructions in order. A send costs the rank nothing; the message arrives `transfer` s later.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from lib_dlhpc.schedules.checks import ProofError
from lib_dlhpc.schedules.pipeline import (
    Backward,
    Forward,
    Instruction,
    Pipeline,
    Receive,
    Send,
    WeightGradients,
    Work,
)

Seconds: TypeAlias = float | Sequence[float]


class Span(NamedTuple):
    """An instruction of a rank, from `start` to `stop` in s."""

    rank: int
    instruction: Instruction
    start: float
    stop: float


def timetable(
    pipeline: Pipeline,
    forward: Seconds = 1.0,
    backward: Seconds = 2.0,
    transfer: Seconds = 0.0,
    weights: Seconds = 0.5,
) -> list[Span]:
    """Return the timeline of all ranks, in s.

    forward, backward: of each stage for a microbatch, or one for all. transfer: of each boundary between
    two stages, or one for all. weights: the share of backward that computes weight gradients, of each stage or one
    for all, where the pipeline does so apart. A wait is part of the Receive.
    Raises ProofError on deadlock, with the blocked ranks and their peers.
    """
    clock = [0.0] * pipeline.ranks
    todo = [deque(stream) for stream in pipeline.streams]
    in_flight: dict[tuple[int, int, Receive], float] = {}  # (from, to, as received): arrival
    spans: list[Span] = []
    moved = True
    while moved:
        moved = False
        for rank, stream in enumerate(todo):
            while stream:
                step, start = stream[0], clock[rank]
                if isinstance(step, Receive):
                    message = (step.peer, rank, step)
                    if message not in in_flight:
                        break
                    clock[rank] = max(start, in_flight.pop(message))
                elif isinstance(step, Send):
                    received = Receive(step.what, step.microbatch, step.stage, rank)
                    in_flight[rank, step.peer, received] = start + _one(
                        transfer, _boundary(step, pipeline)
                    )
                else:
                    stage = step.chunk * pipeline.ranks + rank
                    seconds = _one(forward if isinstance(step, Forward) else backward, stage)
                    if pipeline.splits_backward and not isinstance(step, Forward):
                        share = _one(weights, stage)
                        seconds *= share if isinstance(step, WeightGradients) else 1 - share
                    clock[rank] += seconds
                spans.append(Span(rank, stream.popleft(), start, clock[rank]))
                moved = True
    if any(todo):
        waits = [f"rank {r} waits for {_name(s[0])}" for r, s in enumerate(todo) if s]
        raise ProofError(f"Deadlock: {'; '.join(waits)}.", next(r for r, s in enumerate(todo) if s))
    for source, target, lost in in_flight:
        raise ProofError(f"No rank receives {_name(lost)}, sent to rank {target}.", source)
    return spans


def bubble(
    pipeline: Pipeline, forward: float = 1.0, backward: float = 2.0, weights: float = 0.5
) -> float:
    """Return idle time over compute time of a rank; arguments as in `timetable`.

    (p-1)/m for GPipe and 1F1B, (p-1)/(v m) interleaved, a third of (p-1)/m for ZB-H1 with equal passes;
    (p/2-1)(F&B + B - 3W) over that for DualPipe with equal ones (dualpipe.py).
    """
    makespan = max(span.stop for span in timetable(pipeline, forward, backward, 0.0, weights))
    return makespan / (pipeline.each * pipeline.chunks * (forward + backward)) - 1


def idle_times(
    pipeline: Pipeline, forward: Seconds, backward: Seconds, weights: Seconds = 0.5
) -> list[float]:
    """Return the idle time of each rank in s if messages cost nothing; arguments as in `timetable`."""
    spans = timetable(pipeline, forward, backward, 0.0, weights)
    end, idle = max(span.stop for span in spans), []
    for rank in range(pipeline.ranks):
        mine = (span for span in spans if span.rank == rank)
        idle.append(end - sum(s.stop - s.start for s in mine if not _waits(s.instruction)))
    return idle


def _waits(step: Instruction) -> bool:
    return isinstance(step, Receive | Send)


def stored_chunks(pipeline: Pipeline) -> list[int]:
    """Return for each rank the peak number of chunks of stored activations, or of what is left of them."""
    frees, most = WeightGradients if pipeline.splits_backward else Backward, []
    for stream in pipeline.streams:
        now = peak = 0
        for step in stream:
            now += isinstance(step, Forward) - isinstance(step, frees)
            peak = max(peak, now)
        most.append(peak)
    return most


def prove_pipeline(pipeline: Pipeline) -> list[Span]:
    """Check that every microbatch passes every stage once forward and once backward; return the timeline.

    Where weight gradients are computed apart, those of every microbatch follow its backward pass.

    Raises ProofError, which names the rank and the instruction: repeated, missing, too early, without
    its data, or deadlocked.
    """
    spans = timetable(pipeline)
    passes = (
        (Forward, Backward, WeightGradients) if pipeline.splits_backward else (Forward, Backward)
    )
    for rank, stream in enumerate(pipeline.streams):
        done: set[Instruction] = set()
        for step in stream:
            _check_exists(step, rank, pipeline)
            for needed in _needs(step, rank, pipeline):
                if needed not in done:
                    raise ProofError(f"Rank {rank}: {step} comes before {needed}.", rank)
            if step in done:
                raise ProofError(f"Rank {rank}: {step} is done twice.", rank)
            done.add(step)
        for chunk in range(pipeline.chunks):
            for microbatch in pipeline.through(chunk):
                for wanted in (kind(microbatch, chunk) for kind in passes):
                    if wanted not in done:
                        raise ProofError(f"Rank {rank}: {wanted} is never done.", rank)
    return spans


def _one(seconds: Seconds, index: int) -> float:
    return seconds if isinstance(seconds, float | int) else seconds[index]


def _boundary(step: Send, pipeline: Pipeline) -> int:
    """Return the boundary that a message crosses: for an activation, the one after its source stage."""
    return step.stage if step.what == "activation" else pipeline.next_to(step.stage, -1)


def _needs(step: Instruction, rank: int, pipeline: Pipeline) -> Iterator[Instruction]:
    """Yield the instructions on this rank that must precede this one."""
    ranks, microbatch = pipeline.ranks, step.microbatch
    if isinstance(step, Send):
        made = Forward if step.what == "activation" else Backward
        yield made(microbatch, step.stage // ranks)
    elif isinstance(step, WeightGradients):
        yield Backward(microbatch, step.chunk)
    elif not isinstance(step, Receive):
        stage = step.chunk * ranks + rank
        ahead = isinstance(step, Forward)
        before = pipeline.next_to(stage, -1 if ahead else 1)
        if not ahead:
            yield Forward(microbatch, step.chunk)
        if before >= 0:
            if before % ranks == rank:
                yield type(step)(microbatch, before // ranks)
            else:
                what = "activation" if ahead else "gradient"
                yield Receive(what, microbatch, before, before % ranks)


def _check_exists(step: Instruction, rank: int, pipeline: Pipeline) -> None:
    if step.microbatch not in range(pipeline.microbatches):
        legal = f"microbatches 0 to {pipeline.microbatches - 1}"
    elif isinstance(step, Work) and step.chunk not in range(pipeline.chunks):
        legal = f"chunks 0 to {pipeline.chunks - 1}"
    elif isinstance(step, Work) and step.microbatch not in pipeline.through(step.chunk):
        through = pipeline.through(step.chunk)
        legal = f"microbatches {through[0]} to {through[-1]} of chunk {step.chunk}"
    else:
        return
    raise ProofError(f"Rank {rank}: {step} is out of range; legal: {legal}.", rank)


def _name(step: Instruction) -> str:
    if not isinstance(step, Receive):
        return str(step)
    return f"the {step.what} of microbatch {step.microbatch} from rank {step.peer} (stage {step.stage})"
