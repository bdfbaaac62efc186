"""Textbook formulas of a pipeline: from the first forward pass of a batch to its last backward pass.

A prediction is the longest path through the schedule (price.py); these formulas explain it, and say where they end.
p ranks, m microbatches, v chunks a rank. Rank k computes f_k forward and b_k backward for a microbatch, sum
of its chunks, c_k = f_k + b_k; a message to the next stage takes t_k. With equal stages and free
messages the bubble is (p-1)/m of the work, or (p-1)/(v m) interleaved (Huang et al. 2019, "GPipe";
Narayanan et al. 2021, section 2.2). In general:

    GPipe        sum f + (m-1) max f + sum t, and the same backward
    1F1B         sum (c + 2t) + max over runs of w ranks of
                 floor((m-1)/w) sum over the run (c + 2t) + ((m-1) mod w) max over the run c
    interleaved  m max c + (sum c - max c)/v + 2 (vp-1) t + v m max(0, t - slack)
    ZB-H1        m max c + (p-1) max f, messages free, where weight gradients take half of backward (Qi et al. 2024)
    DualPipe     (m max c + (p/2-1) max (f + b/2)) / 2, messages free, the same (DeepSeek-AI 2024); each of a rank's
                 two stages has half of the microbatches

1F1B: w consecutive ranks have w microbatches in flight, and the next one enters when the first has returned:
every w microbatches take at least one round trip. An interleaved rank runs two passes ahead of the next one, so a
message may take as long as the other pass. GPipe is exact; the others are for equal
stages (1F1B with messages: where p divides m - 1). Beside the longest path through the schedule 1F1B was
within 15% in 114 random cases; interleaved within 15% where messages hide, and up to 70% too long where
links are slower than stages.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.layout import layer_work, stages_by_rule
from lib_dlhpc.prediction.explanation import Explanation
from lib_dlhpc.program.calls import pipeline
from lib_dlhpc.schedules.pipeline import Backward, Forward, passes_of
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown
    from lib_dlhpc.spec.model import Model


class RankTimes(NamedTuple):
    """Seconds per microbatch on each rank, (p,) each, and of the messages between stages."""

    forward: Floats
    backward: Floats
    latency: Floats  # (p-1,); of a message to the next rank, with its transfer
    transfer: Floats  # (p-1,); for how long it occupies the link
    wrap: float = 0.0  # from the last rank to the first, where a rank has several chunks


def pipeline_time(ranks: RankTimes, microbatches: int, schedule: str, chunks: int = 1) -> float:
    """Return the seconds of all microbatches forward and backward through all stages."""
    if len(ranks.forward) == 1:
        return float(microbatches * (ranks.forward[0] + ranks.backward[0]))
    if schedule == "gpipe":
        return _gpipe(ranks, microbatches)
    if schedule == "interleaved":
        return _interleaved(ranks, microbatches, chunks)
    if schedule == "zb-h1":
        work, p = ranks.forward + ranks.backward, len(ranks.forward)
        return float(microbatches * work.max() + (p - 1) * ranks.forward.max())
    if schedule == "dualpipe":
        turn = ranks.forward + ranks.backward / 2  # F&B + B - 3W of two stages
        work, p = ranks.forward + ranks.backward, len(turn)
        return float(microbatches * work.max() + (p / 2 - 1) * turn.max()) / 2
    return _one_by_one(ranks, microbatches)


def in_flight(rank: Any, ranks: Any, microbatches: Any, schedule: str, chunks: int = 1) -> Any:
    """Return the most passes of a chunk that are in flight on a rank: microbatches times chunks; arrays give arrays."""
    if schedule == "gpipe":
        return microbatches
    if schedule == "interleaved":
        ahead = 2 * (ranks - rank - 1) + (chunks - 1) * ranks + 1
        return np.minimum(microbatches * chunks, ahead)
    if schedule == "dualpipe" and np.all(np.greater(ranks, 1)):  # of both directions
        return np.minimum(microbatches, ranks + 1)
    kept = np.minimum(microbatches, ranks - rank)
    return kept + waiting(rank, ranks, microbatches, schedule)


def waiting(rank: Any, ranks: Any, microbatches: Any, schedule: str) -> Any:
    """Return the microbatches on a rank, beside those of 1F1B, that wait for their weight gradients."""
    late = np.minimum(rank, np.maximum(0, microbatches - ranks + rank))
    return late if schedule == "zb-h1" else 0


@lru_cache(maxsize=1024)
def before_backward(
    rank: int, ranks: int, microbatches: int, chunks: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the microbatches in flight of each chunk of an interleaved rank before each of its backward passes,
    shape (passes, chunks), and the chunk of that pass, shape (passes,)."""
    passes = np.arange(microbatches * chunks)
    ahead = passes % (ranks * chunks) // ranks
    back = chunks - 1 - ahead
    one = np.eye(chunks, dtype=np.int64)
    kept, gone = np.cumsum(one[ahead], axis=0), np.cumsum(one[back], axis=0) - one[back]
    warm_up = 2 * (ranks - rank - 1) + (chunks - 1) * ranks
    return kept[np.minimum(passes + warm_up, len(passes) - 1)] - gone, back


@lru_cache(maxsize=512)
def before_mirrored_backward(
    rank: int, ranks: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the microbatches of either stage of a DualPipe rank before each of its backward passes: in flight, and
    waiting for weight gradients alone, shape (passes, 2) each; the stage of that pass, and whether its weight gradients
    are in its turn, shape (passes,) each.

    With more microbatches than the fewest a rank repeats some of these passes.
    """
    held, later, found = np.zeros(2, np.int64), np.zeros(2, np.int64), []
    for turn in pipeline("dualpipe", ranks, 2 * ranks, 1).turns(rank):
        for work in passes_of(turn):
            if isinstance(work, Forward):
                held[work.chunk] += 1
            elif isinstance(work, Backward):
                found.append((held.copy(), later.copy(), work.chunk, turn is not work))
                held[work.chunk] -= 1
                later[work.chunk] += 1
            else:
                later[work.chunk] -= 1
    kept, waits, back, whole = zip(*found, strict=True)
    return np.array(kept), np.array(waits), np.array(back), np.array(whole)


def _gpipe(ranks: RankTimes, m: int) -> float:
    total = 0.0
    for each in (ranks.forward, ranks.backward):
        interval = max(each.max(), ranks.transfer.max())
        total += each.sum() + ranks.latency.sum() + (m - 1) * interval
    return float(total)


def _one_by_one(ranks: RankTimes, m: int) -> float:
    work = ranks.forward + ranks.backward
    p, hops = len(work), np.append(2 * ranks.latency, 0.0)
    done = np.concatenate([[0.0], np.cumsum(work + hops)])
    stall = (m - 1) * max(work.max(), ranks.transfer.max())
    longest = work.copy()
    for width in range(2, p + 1):
        longest = np.maximum(longest[:-1], work[width - 1 :])
        trip = done[width:] - done[:-width] - hops[width - 1 :]
        trips, rest = divmod(m - 1, width)
        stall = max(stall, float((trips * trip + rest * longest).max()))
    return float(done[-1] + stall)


def _interleaved(ranks: RankTimes, m: int, v: int) -> float:
    work = ranks.forward + ranks.backward
    p = len(work)
    hop = max(ranks.latency.max(), ranks.wrap)
    slack = work.mean() / 2
    if v > 1:  # the first rank waits for the last one's chunk before
        slack = min(slack, ranks.forward.mean(), ranks.backward.mean()) / v
    late = max(0.0, hop - slack)
    fill = (work.sum() - work.max()) / v
    return float(m * work.max() + fill + 2 * (v * p - 1) * hop + v * m * late)


BUBBLES = {
    "gpipe": "Σ f + (m-1) max f, and the same backward; with equal stages a bubble of (p-1)/m of the work",
    "1f1b": "Σ c + (m-1) max c, with c = f + b of each rank; with equal stages a bubble of (p-1)/m of the work",
    "interleaved": "m max c + (Σ c - max c)/v; with equal stages a bubble of (p-1)/(v m) of the work",
    "zb-h1": "m max c + (p-1)(f + i - w), with i s for input gradients and w for those of weights; where the two take"
    " equally long, that is m max c + (p-1) f",
    "dualpipe": "m (F + B) + (p/2-1)(F&B + B - 3W), with F, B and W s of a stage forward, for all of backward and for"
    " the weight gradients in it, and F&B = F + B, without the exchanges of experts that the two hide from each other",
}
CLOSE = {  # to the longest path through the schedule, each link between two stages carrying a message at a time
    "gpipe": "The formula is exact.",
    "1f1b": "The formula is exact for equal stages and free messages, else within 15%.",
    "interleaved": "The formula is exact for equal stages and free messages, within 15% where messages hide behind"
    " passes, and up to 70% too long where they do not.",
    "zb-h1": "The formula is exact for equal stages, free messages, m >= p and w no longer than f and i.",
    "dualpipe": "The formula is exact for equal stages, free messages and W <= F = B - W; the bubble is within a"
    " quarter of it where F is within a fifth of B - W and W is 0.4 to 0.5 of B. With other times the bubble can be a"
    " third shorter or several times as long.",
}


def longest_stage(model: "Model", ends: tuple[int, ...]) -> tuple[int, float]:
    """Return the number of the stage with the most work, from 1 on, and its work over the mean."""
    work = np.add.reduceat(layer_work(model), [0, *ends[:-1]])
    return int(work.argmax()) + 1, float(work.max() / work.mean())


def explain_bubble(p: "Breakdown") -> Explanation:
    """Return the explanation of the pipeline bubble."""
    strategy, (ends, rule) = p.experiment.strategy, stages_by_rule(p.experiment)
    longest, share = longest_stage(p.experiment.model, ends)
    layers = ", ".join(str(b - a) for a, b in zip((0, *ends), ends, strict=False))
    return Explanation(
        "pipeline bubble",
        show(float(p.pipeline_bubble), "s"),
        "idle time of the mean rank on the longest path through the schedule with free messages; textbook formula"
        f" of the time: {BUBBLES[strategy.schedule]}",
        (
            ("stages p", f"{strategy.pipeline}", "given"),
            ("microbatches m", f"{strategy.microbatches}", "given"),
            ("chunks v", f"{strategy.chunks}", "given"),
            *[("stages of a rank", "2", "one of each copy of the network")] * strategy.mirrored,
            (
                "layers of each stage",
                layers,
                f"{rule}; strategy.stage_cut = {strategy.stage_cut!r}",
            ),
            (
                "longest stage",
                f"{longest} of {len(ends)}",
                f"the work of its layers is {share:.2f} times the mean",
            ),
        ),
        "Huang et al. 2019 (GPipe); Narayanan et al. 2021, section 2.2; Qi et al. 2024, section 2 (zero bubble);"
        " DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1 (DualPipe)",
        f"{CLOSE[strategy.schedule]} A stage cannot be shorter than a block. Forward passes that are recomputed"
        " start when the gradient has arrived.",
    )
