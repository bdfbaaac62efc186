"""The intervals of a path, stage by stage: what a pass computes, exchanges and waits for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.program.calls import BACKWARD, FORWARD, PASSES, Call
from lib_dlhpc.program.fold import Post
from lib_dlhpc.program.instructions import Collective
from lib_dlhpc.program.program import Block, Program

ROUNDING = 1e-12  # of a pass
NAMES = dict(zip(PASSES, (FORWARD, BACKWARD, "weight gradients"), strict=True))  # of their rows
Posted: TypeAlias = tuple[Post, Any, Any, Any]  # when it was posted, started and ended


# record(place, stream, kind, name, start, stop, bytes=0.0, idle=False): called for every interval of a stage; `idle`: a
# wait that may be pipeline bubble.
Record: TypeAlias = Callable[..., None]


def message_name(call: Call) -> str:
    """Return what the message of a call is called."""
    return f"{'activation' if call.phase == FORWARD else 'gradient'} {call.microbatch}"


def kind_of(call: Call) -> str:
    """Return as what the time of a pass is counted."""
    return FORWARD if call.phase == FORWARD else BACKWARD


def pass_name(program: Program, call: Call) -> str:
    """Return what a pass is called: with its microbatch and chunk, if there are several."""
    if len(call.halves) > 1:
        return " and ".join(pass_name(program, half) for half in call.halves)
    name, pipeline = NAMES[call.phase], program.schedule
    if pipeline.ranks * pipeline.microbatches > 1:
        name += f" {call.microbatch}"
    return name + (f", chunk {call.chunk}" if pipeline.chunks > 1 else "")


def segments(
    name: str, start: Any, filled: Sequence[Any], end: Any
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the segments of a pass, from one bucket that is filled to the next, and the rest: name, start, end."""
    if not filled:
        yield name, start, end
        return
    edges = [start, *filled]
    for number, (begin, stop) in enumerate(pairwise(edges), 1):
        yield f"{name} {number}", begin, stop
    if np.any(end - edges[-1] > ROUNDING * (end - start)):
        yield f"{name} to the input", edges[-1], end


def halves(
    call: Call, block: Block, start: Any, end: Any, variant: int = 0
) -> Iterator[tuple[Call, Any, Any]]:
    """Yield the forward and the backward pass of an overlapped call, with when they begin and end if one follows the
    other; any other call as it is. start, end: s, numbers of a rank of this variant, or arrays of all ranks."""
    if len(call.halves) == 1:
        yield call, start, end
        return
    shares = np.array([block.forward_share(index) for index in range(len(block.variants))])
    share: Any = shares[variant] if np.ndim(start) == 0 else shares[:, None]
    middle = start + share * (end - start)
    yield from zip(call.halves, (start, middle), (middle, end), strict=True)


def draw_pass(
    record: Record,
    program: Program,
    call: Call,
    times: tuple[Any, Any, Any],
    waits: Mapping[str, Any],
    exchanged: tuple[str, float],
    posted: Sequence[Posted],
) -> None:
    """Record a pass: its work, then its exchanges, then what it waited for; and what it posted.

    times: s at which it starts, at which its work would be done alone, and at which it ends. waits: s by what is waited
    for. exchanged: the name of what ranks exchange within the pass, and bytes.
    """
    start, worked, end = times
    place, (word, sent) = call.place, exchanged
    name = pass_name(program, call)
    alone = name == kind_of(call) and not sent and not waits
    fills = (
        start_of
        for post, start_of, _, _ in posted
        if isinstance(post.what, Collective) and post.what.layers
    )
    filled = [*fills] if alone else []
    block = program.stages[place][call.chunk].block(call.phase, call.once)
    for half, begins, ends in halves(call, block, start, worked):
        for segment, begin, stop in segments(pass_name(program, half), begins, filled, ends):
            record(place, "compute", kind_of(half), segment, begin, stop)
    behind = end - sum(waits.values()) if waits else end
    if sent:
        record(place, "compute", "wait", f"wait for the {word}", worked, behind)
        _communicate(record, place, f"{word}: {name}", worked, behind, sent)
    for label, seconds in waits.items():
        record(place, "compute", "wait", f"wait for {label}", behind, behind + seconds)
        behind = behind + seconds
    together: dict[str, list[tuple[Post, Any, Any]]] = {}
    for post, _, begin, done in posted:
        if post.what.label:
            _communicate(record, place, post.what.label, begin, done, post.bytes)
        else:
            together.setdefault(program.kinds[post.what.kind], []).append((post, begin, done))
    for word, each in together.items():
        size = sum(post.bytes for post, _, _ in each)
        _communicate(record, place, f"{word}: {name}", each[0][1], each[-1][2], size)


def _communicate(record: Record, place: int, name: str, start: Any, stop: Any, size: float) -> None:
    record(place, "communication", "communication", name, start, stop, bytes=size)
