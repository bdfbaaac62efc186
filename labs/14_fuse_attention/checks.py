"""Checks of lab 14: are matmul, softmax and attention right on a chip, what do they move, and what does fusing save?

In the notebook:   task(NAME), playground(), devices(NAME),
                   check_matmul(matmul, matmul_moved, NAME), check_softmax(softmax, NAME),
                   check_attention(attention, attention_moved, NAME), check_seconds(seconds, longest, NAME),
                   check_backward(backward, NAME), hand_in(NAME, all seven)
In a terminal:     python checks.py step.py "your name"     all fourteen, on hidden shapes too
"""

from pathlib import Path

import numpy as np

from lib_dlhpc.explore.labs.lab import save_and_check, say, show
from lib_dlhpc.labs.findings import seed_of
from lib_dlhpc.labs.fuse_attention.attention_laws import attention_findings, attentions_of
from lib_dlhpc.labs.fuse_attention.backward_laws import backward_findings
from lib_dlhpc.labs.fuse_attention.chip import Chip, Matrix
from lib_dlhpc.labs.fuse_attention.tile_laws import (
    matmul_findings,
    matmuls_of,
    softmax_findings,
    softmaxes_of,
)
from lib_dlhpc.labs.fuse_attention.time_laws import time_findings, timed_of, words_of
from lib_dlhpc.labs.program import check_file, end_together

HERE = Path(__file__).parent
NAMES = (
    *("matmul", "matmul_moved", "softmax"),
    *("attention", "attention_moved", "seconds", "longest"),
)


def task(name):
    """Return the learner's shapes and devices in words."""
    seed = seed_of(name)
    kernels = {
        "matmul": matmuls_of(seed),
        "softmax": softmaxes_of(seed),
        "attention": attentions_of(seed),
    }
    groups = [
        "\n".join(f"{kernel}: {each.words}" for each in own) for kernel, own in kernels.items()
    ]
    return say("\n\n".join([*groups, words_of(seed)]))


def playground(room=40):
    """Return a chip, a matrix of 12 x 5 in HBM, and an empty one to write to."""
    numbers = np.arange(60.0).reshape(12, 5)
    return Chip(room), Matrix("x", numbers, constant=True), Matrix("y", np.zeros((12, 5)))


def growth(name):
    """Return how many times as much attention moves in three kernels as in one, on the learner's longest sequence."""
    own = attentions_of(seed_of(name))[-1]
    return (4 * own.n * own.d + 4 * own.n**2) / own.little


def devices(name):
    """Return pairs of size and gpu, as seconds gets them, of the learner's devices."""
    return [(each.size, each.gpu) for each in timed_of(seed_of(name))]


def check_matmul(matmul, moved, name):
    """Return the findings on the matmul for the page."""
    return show(matmul_findings(matmul, moved, matmuls_of(seed_of(name))), "Your matmul")


def check_softmax(softmax, name):
    """Return the findings on softmax for the page."""
    return show(softmax_findings(softmax, softmaxes_of(seed_of(name))), "Your softmax")


def check_attention(attention, moved, name):
    """Return the findings on attention for the page."""
    found = attention_findings(attention, moved, attentions_of(seed_of(name)))
    return show(found, "Your attention")


def check_seconds(seconds, longest, name):
    """Return the findings on the roofline for the page."""
    return show(time_findings(seconds, longest, timed_of(seed_of(name))), "Your roofline")


def check_backward(backward, name):
    """Return the findings on the gradients for the page, which are not graded."""
    found = backward_findings(backward, attentions_of(seed_of(name)))
    return show(found, "Your backward")


def findings(given, name):
    """Return what holds for all that is handed in, on hidden shapes as well: functions by their names in NAMES."""
    matmul, matmul_moved, softmax, attention, attention_moved, seconds, longest = (
        given[each] for each in NAMES
    )
    seed, both = seed_of(name), (False, True)

    def every(of):
        return [each for hidden in both for each in of(seed, hidden)]

    return [
        *matmul_findings(matmul, matmul_moved, every(matmuls_of)),
        *softmax_findings(softmax, every(softmaxes_of)),
        *attention_findings(attention, attention_moved, every(attentions_of)),
        *time_findings(seconds, longest, every(timed_of)),
    ]


def hand_in(name, *functions):
    """Save the cells as step.py and say what of all holds."""
    return save_and_check(HERE, NAMES, findings, name, functions)


def main():
    """Check step.py."""
    check_file(NAMES, findings)


if __name__ == "__main__":
    end_together(main)
