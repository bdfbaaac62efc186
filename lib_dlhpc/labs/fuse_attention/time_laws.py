"""A learner's roofline of attention on a device: three kernels, one kernel, and where the scores do not fit.

time_findings(seconds, longest, tasks)    seconds(size, gpu): of three kernels and of one; longest(size, gpu): tokens
A wrong value is matched with those that classic mistakes give.
"""

from collections.abc import Callable, Sequence
from math import ceil, isqrt
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.findings import Finding
from lib_dlhpc.labs.formula_cases import Case, compared
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.machine import read_device
from lib_dlhpc.spec.units import format_quantity as show

say = sentences(__file__)

THREE = "Seconds: scores, softmax and output as three kernels"
ONE = "Seconds: attention as one kernel"
LONGEST = "Longest: the most tokens whose scores fit in memory"
STEEP = ("v100-sxm2-32gb", "mi250x-gcd")  # arithmetic limits matmuls of a wide head
FLAT = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "mi300x", "b200-sxm-180gb")
Amounts = Sequence[tuple[float, float]]  # FLOP and numbers moved of each kernel


class Timed(NamedTuple):
    """Attention of all heads of a batch on a device. rows: queries of a block of the fused kernel."""

    device: str
    tokens: int
    head: int
    heads: int
    rows: int

    @property
    def size(self) -> dict[str, int]:
        """What a learner knows of the heads. head: numbers of a token in one; bytes: of a number."""
        return {"tokens": self.tokens, "head": self.head, "heads": self.heads, "bytes": 2}

    @property
    def gpu(self) -> dict[str, float]:
        """What a learner knows of the device: FLOP/s that matmuls reach, B/s, B, and queries of a block."""
        device = read_device(self.device)
        return {
            "flops": float(device.efficiency * device.peak["fp16"]),
            "bandwidth": float(device.memory_bandwidth),
            "memory": float(device.memory - device.reserved_memory),
            "rows": self.rows,
        }

    @property
    def words(self) -> str:
        """The task in words."""
        return f"{self.device}, {self.heads} heads of {self.head}, {self.tokens:,} tokens"


def timed_of(seed: int, hidden: bool = False) -> list[Timed]:
    """Return a learner's devices: one of either kind, with few and with many tokens."""
    rng = np.random.default_rng([seed, 17, hidden])
    made = []
    for kinds, wide in ((FLAT, (64, 128)), (STEEP, (128, 256))):
        device, head = str(rng.choice(kinds)), int(rng.choice(wide))
        heads, rows = int(rng.choice((16, 32, 40, 64))), int(rng.choice((64, 128, 256)))
        for tokens in (int(rng.integers(300, 900)), int(rng.integers(3000, 9000))):
            made.append(Timed(device, tokens, head, heads, rows))
    return made


def words_of(seed: int) -> str:
    """Return the learner's devices in words."""
    lines = []
    for each in timed_of(seed)[1::2]:
        gpu = each.gpu
        lines.append(
            f"seconds: {each.words}; {show(gpu['flops'], 'FLOP/s')}, {show(gpu['bandwidth'], 'B/s')},"
            f" {show(gpu['memory'], 'B')}; blocks of {each.rows} queries"
        )
    return "\n".join(lines)


def three(task: Timed) -> Amounts:
    """Return FLOP and numbers moved of scores, softmax and output, of all heads."""
    n, d, h = task.tokens, task.head, task.heads
    matmul = 2.0 * h * n * n * d
    return (
        (matmul, h * (2.0 * n * d + n * n)),
        (0.0, 2.0 * h * n * n),
        (matmul, h * (n * n + 2.0 * n * d)),
    )


def one(task: Timed) -> Amounts:
    """Return FLOP and numbers moved of one kernel: queries and output once, keys and values for each block."""
    n, d, h = task.tokens, task.head, task.heads
    return ((4.0 * h * n * n * d, h * 2.0 * n * d * (1 + ceil(n / task.rows))),)


def roofline(task: Timed, amounts: Amounts, wide: float = 2.0) -> float:
    """Return the seconds of kernels, one after the other: each takes the longer of arithmetic and memory."""
    gpu = task.gpu
    return sum(max(flop / gpu["flops"], wide * moved / gpu["bandwidth"]) for flop, moved in amounts)


def longest_of(task: Timed, squares: float = 2.0, others: float = 4.0, wide: float = 2.0) -> float:
    """Return the most tokens with scores, weights, and q, k, v and out of all heads in memory at the same time."""
    room = task.gpu["memory"] / wide / task.heads
    own = others * task.head  # squares n^2 + own n <= room
    return float(int((-own + (own * own + 4 * squares * room) ** 0.5) / (2 * squares)))


def time_findings(
    seconds: Callable[..., Any], longest: Callable[..., Any], tasks: Sequence[Timed]
) -> list[Finding]:
    """Return whether a learner's seconds and tokens are those of the roofline."""
    whole = tasks[1::2]
    return [
        compared(
            THREE, _part(seconds, 0), map(_three, tasks), f"On {len(whole)} devices.", unit="s"
        ),
        compared(ONE, _part(seconds, 1), map(_one, tasks), f"On {len(whole)} devices.", unit="s"),
        compared(LONGEST, longest, map(_longest, whole), f"On {len(whole)} devices.", 5e-4),
    ]


def _part(seconds: Callable[..., Any], number: int) -> Callable[..., Any]:
    def part(size: Any, gpu: Any) -> Any:
        found = seconds(size, gpu)
        try:
            pair = tuple(found)
            if len(pair) == 2:
                return pair[number]
        except TypeError:
            pass
        raise LabError(say.two_numbers)

    part.__name__ = "seconds"
    return part


def _case(task: Timed, right: float, slips: Sequence[tuple[str, float]], amounts: Amounts) -> Case:
    kept = [each for each in slips if abs(each[1] - right) > 0.02 * right]
    parts = [show(roofline(task, [each]), "s") for each in amounts]
    hint = (
        f"The first kernel takes {parts[0]}, its arithmetic {show(amounts[0][0] / task.gpu['flops'], 's')}."
        if len(parts) > 1
        else f"Its arithmetic takes {show(amounts[0][0] / task.gpu['flops'], 's')}."
    )
    return Case(task.words, (task.size, task.gpu), right, kept, hint)


def _shared(task: Timed, amounts: Amounts) -> list[tuple[str, float]]:
    """Return what mistakes with the roofline give."""
    gpu, right = task.gpu, roofline(task, amounts)
    flop, moved = (sum(each) for each in zip(*amounts, strict=True))
    arithmetic, memory = flop / gpu["flops"], 2 * moved / gpu["bandwidth"]
    return [
        (say.not_overlapped, arithmetic + memory),
        (say.no_traffic, arithmetic),
        (say.no_arithmetic, memory),
        (say.one_head, right / task.heads),
        (say.one_head_moves, roofline(task, [(each, own / task.heads) for each, own in amounts])),
        (say.elements, roofline(task, amounts, 1.0)),
        (say.one_flop, roofline(task, [(each / 2, own) for each, own in amounts])),
    ]


def _three(task: Timed) -> Case:
    amounts = three(task)
    n, h = task.tokens, task.heads
    flop, moved = (sum(each) for each in zip(*amounts, strict=True))
    square = float(h * n * n)
    inputs = [(flops, numbers - square * (flops > 0)) for flops, numbers in amounts]
    slips = [
        (say.one_roofline, roofline(task, [(flop, moved)])),
        (say.no_softmax, roofline(task, [amounts[0], amounts[2]])),
        (say.softmax_once, roofline(task, [amounts[0], (0.0, square), amounts[2]])),
        (say.scores_once, roofline(task, [inputs[0], amounts[1], inputs[2]])),
    ]
    return _case(task, roofline(task, amounts), [*slips, *_shared(task, amounts)], amounts)


def _one(task: Timed) -> Case:
    amounts = one(task)
    ((flop, _),) = amounts
    n, d, h = task.tokens, task.head, task.heads
    each = 2.0 * h * n * d
    square = float(h * n * n)
    slips = [
        (say.arithmetic_only, flop / task.gpu["flops"]),
        (say.read_once, roofline(task, [(flop, 2 * each)])),
        (say.no_last_block, roofline(task, [(flop, each * (1 + n // task.rows))])),
        (say.part_of_block, roofline(task, [(flop, each * (1 + n / task.rows))])),
        (say.scores_moved, roofline(task, [(flop, 2 * each + 4 * square)])),
        (say.scores_moved, roofline(task, three(task))),
        (say.one_matmul, roofline(task, [(flop / 2, amounts[0][1])])),
        (say.per_query, roofline(task, [(flop, each * (1 + n))])),
    ]
    return _case(task, roofline(task, amounts), [*slips, *_shared(task, amounts)], amounts)


def _longest(task: Timed) -> Case:
    right, room = longest_of(task), task.gpu["memory"] / 2 / task.heads
    slips = [
        (say.one_matrix, longest_of(task, 1.0)),
        (say.no_inputs, longest_of(task, 2.0, 0.0)),
        (say.one_matrix_alone, longest_of(task, 1.0, 0.0)),
        (say.elements_and_one, longest_of(task, wide=1.0)),
        (say.one_head_held, longest_of(task._replace(heads=1))),
        (say.not_square_root, room / 2),
        (say.rounded_up, float(isqrt(int(room)))),
    ]
    kept = [each for each in slips if abs(each[1] - right) > 1e-3 * right]
    return Case(task.words, (task.size, task.gpu), right, kept, say.about_tokens)
