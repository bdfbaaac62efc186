"""What three pipelines cost: the idle time of a rank, the weights and the activations that it holds, in closed form.

p equal stages, free messages; F, B, W: seconds of a stage for a microbatch forward, for all of backward, and for the
weight gradients, which are part of B; F&B: of a forward and a backward pass that overlap (DeepSeek-AI 2024,
DeepSeek-V3 Technical Report, arXiv:2412.19437, table 2, whose ZB1P is ZB-H1).

    1F1B      (p - 1) (F + B)               weights once, activations of p microbatches
    ZB-H1     (p - 1) (F + B - 2 W)         the same
    DualPipe  (p/2 - 1) (F&B + B - 3 W)     weights twice, activations of p + 1 microbatches

DualPipe feeds microbatches from both ends: a rank holds a stage of each direction, and overlaps a forward pass of one
with a backward pass of the other, so that the exchanges of one hide behind the arithmetic of the other.
"""

from typing import NamedTuple

from lib_dlhpc.errors import SpecError


class PassTimes(NamedTuple):
    """Seconds of a stage for a microbatch: forward, all of backward, its weight gradients.

    overlapped: of a forward and a backward pass at once; None: they take as long as one after the other.
    """

    forward: float
    backward: float
    weights: float
    overlapped: float | None = None


class RankCost(NamedTuple):
    """Seconds that a rank is idle in a step, copies of a stage's weights, microbatches whose activations it holds."""

    idle: float
    weights: int
    activations: int


def bubbles(stages: int, passes: PassTimes) -> dict[str, RankCost]:
    """Return what each schedule costs.

    Raises SpecError for an odd number of stages, which DualPipe cannot have, and for weight gradients that take so
    long that idle time would be negative.
    """
    if stages < 2 or stages % 2:
        raise SpecError(
            f"stages = {stages}: DualPipe feeds microbatches from both ends; legal: even numbers from 2."
        )
    f, b, w, both = passes
    both = f + b if both is None else both
    most = min(b, (f + b) / 2, (both + b) / 3)
    if not 0 <= w <= most:
        raise SpecError(f"weights = {w:g} s: legal: 0 to {most:g} s with these other passes.")
    return {
        "1F1B": RankCost((stages - 1) * (f + b), 1, stages),
        "ZB-H1": RankCost((stages - 1) * (f + b - 2 * w), 1, stages),
        "DualPipe": RankCost((stages / 2 - 1) * (both + b - 3 * w), 2, stages + 1),
    }
