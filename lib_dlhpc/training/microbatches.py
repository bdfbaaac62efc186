"""The microbatches of a step, or of a test, on their way through a rank's stages."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from lib_dlhpc.schedules.pipeline import Receive, Send
from lib_dlhpc.training.groups import Groups
from lib_dlhpc.training.layers.kept import Array, Shapes
from lib_dlhpc.training.pipe import Arrays, Pipe
from lib_dlhpc.training.stage import Stage


@dataclass
class Step:
    """What is known of a step while it goes on."""

    stages: list[Stage]  # of this rank
    depth: int  # ranks of the pipeline
    slices: list[slice]  # of the global batch: a microbatch each
    inputs: Callable[[int], Array]  # of a microbatch
    targets: Callable[[int], Array]
    samples: int  # of the global batch
    loss: float = 0.0
    bad: int = -1  # the first microbatch whose loss is no number
    arrived: dict[tuple[str, int, int], Arrays] = field(default_factory=dict)

    def size(self, microbatch: int) -> int:
        """Return how many samples a microbatch has."""
        return self.slices[microbatch].stop - self.slices[microbatch].start

    def shapes(self, letter: Receive) -> Shapes:
        """Return the shapes of what comes: outputs of the stage before, or gradients of one's own."""
        ahead = letter.what == "activation"
        own = letter.stage + (1 if ahead else -1)
        stage = self.stages[own // self.depth]
        names = stage.part.receives if ahead else stage.part.sends
        return stage.shapes(names, self.size(letter.microbatch))


def cut(mine: slice, pieces: int) -> list[slice]:
    """Cut a range into pieces as even as whole numbers allow; the first are the longer ones."""
    short, longer = divmod(mine.stop - mine.start, pieces)
    edges = [mine.start + k * short + min(k, longer) for k in range(pieces + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def through(
    now: Step, pipe: Pipe, microbatch: int, training: bool
) -> Iterator[tuple[Stage, Array | None, Arrays, Arrays]]:
    """Take one microbatch forward, never back; yield each of this rank's stages, what it reads and gives.

    That is the samples, if it reads them, what it has received, and its outputs.
    """
    for stage in now.stages:
        number, received = stage.part.stage, {}
        if number and now.depth == 1:
            received = now.arrived.pop(("activation", microbatch, number - 1))
        elif number:
            letter = Receive("activation", microbatch, number - 1, (number - 1) % now.depth)
            pipe.expect(letter, now.shapes(letter))
            received = pipe.receive(letter)
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


def where_numbers_end(now: Step, pipe: Pipe, groups: Groups) -> tuple[int, str]:
    """Return the rank and the layer whose output is the first that is no number; all ranks call this.

    They take the first microbatch whose loss was none forward once more.
    """
    world, last = groups.world, len(now.slices)
    microbatch = world.allreduce(now.bad if now.bad >= 0 else last, min)
    for stage in now.stages:
        stage.network.begin_step([now.size(microbatch)])
    found = []
    for stage, x, received, given in through(now, pipe, microbatch, training=True):
        came = not all(np.isfinite(array).all() for array in received.values())
        goes = stage.last or not all(np.isfinite(array).all() for array in given.values())
        if not _anywhere(groups, came) and _anywhere(groups, goes):
            layer = stage.network.first_without_numbers(x, received)
            found.append((stage.part.stage, layer == "the loss", world.rank, layer))
    pipe.finish()
    _, _, rank, layer = min(world.allreduce(found))
    return rank, layer


def _anywhere(groups: Groups, mine: bool) -> bool:
    """Return whether it is so on any rank that has the same stages."""
    ranks = int(mine)
    for group in (groups.tensor, groups.spatial, groups.data):
        ranks = group.allreduce(ranks)
    return ranks > 0
