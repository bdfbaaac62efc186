"""Lab 4, build the pipeline: a solution, and mistakes by name."""

import numpy as np

from lib_dlhpc.schedules.pipeline import Backward, Forward, Receive, Send


def forward(i, rank, ranks):
    """Take microbatch i through this rank: what it needs, the work, what the next rank needs."""
    if rank > 0:
        yield Receive("activation", i, rank - 1, rank - 1)
    yield Forward(i, 0)
    if rank + 1 < ranks:
        yield Send("activation", i, rank, rank + 1)


def backward(i, rank, ranks):
    """Take its gradient back through this rank."""
    if rank + 1 < ranks:
        yield Receive("gradient", i, rank + 1, rank + 1)
    yield Backward(i, 0)
    if rank > 0:
        yield Send("gradient", i, rank, rank - 1)


def gpipe(rank, ranks, microbatches):
    """All forward, then all backward."""
    for i in range(microbatches):
        yield from forward(i, rank, ranks)
    for i in reversed(range(microbatches)):
        yield from backward(i, rank, ranks)


def one_f_one_b(rank, ranks, microbatches=8):
    """As soon as the pipe is full, one forward and one backward in turn."""
    ahead = min(ranks - rank - 1, microbatches)
    for i in range(ahead):
        yield from forward(i, rank, ranks)
    for i in range(ahead, microbatches):
        yield from forward(i, rank, ranks)
        yield from backward(i - ahead, rank, ranks)
    for i in range(microbatches - ahead, microbatches):
        yield from backward(i, rank, ranks)


def step(stream, stage, comm, rate):
    """Carry out a stream and move the weights; return the loss on the last rank."""
    arrived, made, in_flight, value = {}, {}, [], 0.0
    total = np.zeros_like(stage.gradients)
    for do in stream:
        i = do.microbatch
        if isinstance(do, Receive):
            arrived[do.what, i] = np.empty((stage.samples[i], stage.width[do.what]))
            comm.Recv(arrived[do.what, i], do.peer)
        elif isinstance(do, Send):
            in_flight.append(comm.Isend(made[do.what, i], do.peer))
        elif isinstance(do, Forward):
            made["activation", i] = stage.forward(i, arrived.get(("activation", i)))
        else:
            dy = arrived.get(("gradient", i))
            part, made["gradient", i] = stage.backward(i, dy, sum(stage.samples))
            value += part
            total += stage.gradients
    for request in in_flight:
        request.Wait()
    stage.weights -= rate * total
    return value


def naive(rank, ranks, microbatches=8):
    """What the starter does: a microbatch is back before the next sets out."""
    for i in range(microbatches):
        yield from forward(i, rank, ranks)
        yield from backward(i, rank, ranks)


def both_ways_at_once(rank, ranks, microbatches=8):
    """Every rank does one forward and one backward in turn from the start: who is to give it a gradient?"""
    for i in range(microbatches):
        yield from forward(i, rank, ranks)
        if i:
            yield from backward(i - 1, rank, ranks)
    yield from backward(microbatches - 1, rank, ranks)


def backward_first(rank, ranks, microbatches=8):
    """The gradient is asked for before the activation."""
    for i in range(microbatches):
        yield from backward(i, rank, ranks)
        yield from forward(i, rank, ranks)


def asks_before_it_gives(rank, ranks, microbatches=8):
    """The gradient is waited for before the activation is sent that it depends on."""
    for i in range(microbatches):
        ahead, back = list(forward(i, rank, ranks)), list(backward(i, rank, ranks))
        inner = rank + 1 < ranks
        yield from ahead[:-1] if inner else ahead
        yield from [back[0], ahead[-1], *back[1:]] if inner else back


def one_forgotten(rank, ranks, microbatches=8):
    """The last backward is lost."""
    for i in range(microbatches):
        yield from forward(i, rank, ranks)
    for i in range(microbatches - 1):
        yield from backward(i, rank, ranks)


def too_far_ahead(rank, ranks, microbatches=8):
    """1F1B with two more in the pipe than are needed."""
    ahead = min(ranks - rank + 1, microbatches)
    for i in range(ahead):
        yield from forward(i, rank, ranks)
    for i in range(ahead, microbatches):
        yield from forward(i, rank, ranks)
        yield from backward(i - ahead, rank, ranks)
    for i in range(microbatches - ahead, microbatches):
        yield from backward(i, rank, ranks)


# mistake -> (the law that must break when it is handed in as that stream, words that its finding must hold)
WRONG_STREAMS = {
    naive: ("GPipe", "No two ranks ever compute at the same time"),
    both_ways_at_once: ("1F1B: proven", "a rank is idle"),
    backward_first: ("1F1B: proven", "Backward(microbatch=0, chunk=0) comes before Forward"),
    asks_before_it_gives: (
        "1F1B: proven",
        "Deadlock: rank 0 waits for the gradient of microbatch 0 from rank 1 (stage 1); rank 1 waits for"
        " the activation of microbatch 0 from rank 0",
    ),
    one_forgotten: ("GPipe", "is never done"),
    too_far_ahead: ("1F1B: rank r", "at once; 2 fill the pipe"),
}

# mistake -> (text of the solution's step, what stands there instead, the law that must break, its words)
WRONG_STEPS = {
    "one room for all that arrives": (
        "np.empty((stage.samples[i], stage.width[do.what]))",
        "arrived.setdefault(do.what, np.empty((stage.samples[0], stage.width[do.what])))",
        "A received activation",
        "the forward of microbatch 0 was given was overwritten",
    ),
    "the last gradients count": (
        "total += stage.gradients",
        "total = stage.gradients.copy()",
        "Even microbatches",
        "used the gradients of microbatch 0 alone",
    ),
    "the sum is the array of backward": (
        "total = np.zeros_like(stage.gradients)",
        "total = stage.gradients",
        "Even microbatches",
        "used twice the gradients of microbatch 0",
    ),
    "means are summed": (
        "sum(stage.samples)",
        "stage.samples[i]",
        "Even microbatches",
        "these means were summed",
    ),
    "a mean of means": (
        "stage.backward(i, dy, sum(stage.samples))",
        "stage.backward(i, dy, len(stage.samples) * stage.samples[i])",
        "Uneven microbatches",
        "Every microbatch counts equally",
    ),
    "divided twice": (
        "rate * total",
        "rate * total / len(stage.samples)",
        "Even microbatches",
        "times too short",
    ),
    "sends that wait": (
        "in_flight.append(comm.Isend(made[do.what, i], do.peer))",
        "comm.Send(made[do.what, i], do.peer)",
        "Uneven microbatches",
        "rank 0 waits in Send to rank 1, which does not receive it; rank 1 waits in Send",
    ),
    "what is sent is not waited for": (
        "request.Wait()",
        "pass",
        "Every message",
        "never waited for",
    ),
    "the loss of one microbatch": (
        "value += part",
        "value = part",
        "The last rank returns",
        "was returned where the mean over all samples",
    ),
    "messages are mixed up": (
        "do.peer)\n        elif isinstance(do, Send)",
        "stage.stages - 1 - do.peer)\n        elif isinstance(do, Send)",
        "One microbatch",
        "no rank can continue",
    ),
    "the weights of the batch before": (
        "stage.weights -= rate * total",
        "stage.old = total + getattr(stage, 'old', 0)\n    stage.weights -= rate * stage.old",
        "One microbatch",
        "a later one is not",
    ),
}
