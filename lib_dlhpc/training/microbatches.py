"""The microbatches of a step, or of a test, in flight through a rank's stages."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from lib_dlhpc.layers.base.saved import Array, Shapes
from lib_dlhpc.schedules.pipeline import Receive, Send
from lib_dlhpc.training.groups import Groups
from lib_dlhpc.training.pipeline_messages import Arrays, Pipe
from lib_dlhpc.training.stage import Stage


@dataclass
class Step:
    """The state of a step in progress."""

    stages: list[Stage]  # of this rank
    depth: int  # ranks of the pipeline
    slices: list[slice]  # of the global batch: a microbatch each
    inputs: Callable[[int], Array]  # of a microbatch
    targets: Callable[[int], Array]
    samples: int  # of the global batch
    loss: float = 0.0
    bad: int = -1  # the first microbatch with a non-finite loss
    arrived: dict[tuple[str, int, int], Arrays] = field(default_factory=dict)

    def size(self, microbatch: int) -> int:
        """Return the number of samples of a microbatch."""
        return self.slices[microbatch].stop - self.slices[microbatch].start

    def shapes(self, message: Receive) -> Shapes:
        """Return the shapes of a message: outputs of the previous stage, or gradients of this stage's outputs."""
        ahead = message.what == "activation"
        own = message.stage + (1 if ahead else -1)
        stage = self.stages[own // self.depth]
        names = stage.part.receives if ahead else stage.part.sends
        return stage.shapes(names, self.size(message.microbatch))


def cut(mine: slice, pieces: int) -> list[slice]:
    """Cut a range into pieces whose sizes differ by one at most, longer ones first."""
    short, longer = divmod(mine.stop - mine.start, pieces)
    edges = [mine.start + k * short + min(k, longer) for k in range(pieces + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def through(
    now: Step, pipe: Pipe, microbatch: int, training: bool
) -> Iterator[tuple[Stage, Array | None, Arrays, Arrays]]:
    """Take one microbatch forward only; yield each of this rank's stages with its input and output.

    Input: the samples, if the stage reads them, and the received activations.
    """
    for stage in now.stages:
        number, received = stage.part.stage, {}
        if number and now.depth == 1:
            received = now.arrived.pop(("activation", microbatch, number - 1))
        elif number:
            message = Receive("activation", microbatch, number - 1, (number - 1) % now.depth)
            pipe.expect(message, now.shapes(message))
            received = pipe.receive(message)
        x = now.inputs(microbatch) if stage.reads else None
        stage.network.context.first_sample = now.slices[microbatch].start
        given = stage.network.run("apart", x, received, training)
        yield stage, x, received, given
        if stage.last:
            continue
        if now.depth == 1:
            now.arrived["activation", microbatch, number] = given
        else:
            peer = (number + 1) % now.depth
            pipe.send(Send("activation", microbatch, number, peer), given)


def find_non_finite(now: Step, pipe: Pipe, groups: Groups) -> tuple[int, str]:
    """Return the rank and the layer with the first non-finite output; all ranks call this.

    They rerun the forward pass of the first microbatch with a non-finite loss.
    """
    world, last = groups.world, len(now.slices)
    microbatch = world.allreduce(now.bad if now.bad >= 0 else last, min)
    for stage in now.stages:
        stage.network.begin_step([now.size(microbatch)])
    layers = []
    for stage, x, received, given in through(now, pipe, microbatch, training=True):
        bad_input = not all(np.isfinite(array).all() for array in received.values())
        bad_output = stage.last or not all(np.isfinite(array).all() for array in given.values())
        if not _anywhere(groups, bad_input) and _anywhere(groups, bad_output):
            layer = stage.network.first_non_finite(x, received)
            layers.append((stage.part.stage, layer == "the loss", world.rank, layer))
    pipe.finish()
    _, _, rank, layer = min(world.allreduce(layers))
    return rank, layer


def _anywhere(groups: Groups, mine: bool) -> bool:
    """Return whether `mine` is true on any rank that has the same stages."""
    ranks = int(mine)
    for group in (groups.tensor, groups.spatial, groups.data):
        ranks = group.allreduce(ranks)
    return ranks > 0
