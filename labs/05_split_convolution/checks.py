"""Checks of lab 5: is a convolution cut over ranks that of one rank, forward and backward, and what does it move?

In the notebook:   check_filters(forward, backward, NAME), check_rows(forward, backward, NAME),
                   layers(NAME), check_answers(answers, NAME), on_ranks(NAME, all five)
In a terminal:     python checks.py step.py "your name"                  emulated ranks
                   mpiexec -n 4 python checks.py step.py "your name"     real ranks; srun works as well
"""

from functools import cache
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib_dlhpc.explore.labs.lab import save_and_run, say, show
from lib_dlhpc.labs.attempts import report
from lib_dlhpc.labs.emulated.ranks import LabError
from lib_dlhpc.labs.emulated.split_convolution import (
    Convolution,
    Ended,
    SplitTask,
    emulate_backward,
    emulate_forward,
    least_moved,
    rank_backward,
    rank_forward,
)
from lib_dlhpc.labs.emulated.split_gradient_errors import (
    filter_gradients_off,
    filters_off,
    input_gradient_off,
    weight_gradient_off,
)
from lib_dlhpc.labs.emulated.split_output_errors import outputs_off
from lib_dlhpc.labs.findings import broken, kept, later, passed, seed_of
from lib_dlhpc.labs.program import arguments, emulated_first, end_together, end_with, handed_in
from lib_dlhpc.schedules import price, schedule
from lib_dlhpc.spec.units import format_quantity as show_quantity

HERE = Path(__file__).parent
RANKS = 4
CLOSE = 0.05  # of the seconds of an answer
MARGIN = 1.02  # times the bytes that have to move
FILTERS_Y = "By filters: the outputs of one rank"
FILTERS_D = "By filters: both gradients of one rank"
FILTERS_B = "Target by filters: no more bytes than have to move"
ROWS_Y = "By rows: the outputs of one rank"
ROWS_DX = "By rows: the gradient of the input"
ROWS_DW = "By rows: the gradient of the weights"
ROWS_B = "Target by rows: no more bytes than have to move"
CHEAPER = "Which split is cheaper, and how long it takes"
FILTERS, ROWS = (FILTERS_Y, FILTERS_D, FILTERS_B), (ROWS_Y, ROWS_DX, ROWS_DW, ROWS_B)
NAMES = ("filters_forward", "filters_backward", "rows_forward", "rows_backward", "answers")
AS_ABOVE = "Checked as soon as the one above holds."


def tasks(name, ranks=RANKS):
    """Return the learner's own convolutions: odd sizes, several kernels, strides and paddings."""
    rng = np.random.default_rng(seed_of(name))
    own = [(3, 1, 1), (5, 1, 2), (5, 2, 2), [(3, 2, 0), (4, 2, 1), (3, 3, 1)][rng.integers(3)]]
    result = []
    for kernel, stride, padding in own:
        fewer = ranks - 1 if kernel == 5 and stride == 2 and ranks > 2 else ranks
        rows = int(4 * ranks + rng.choice([1, 3]))
        filters, columns = ranks + int(rng.integers(1, ranks + 1)), int(rng.choice([7, 9, 11]))
        layer = Convolution(
            int(rng.integers(2, 5)), filters, kernel, stride, padding, rows, columns
        )
        result.append(SplitTask(layer, fewer, int(rng.integers(1000))))
    tall = Convolution(2, ranks + 1, 7, 1, 3, 2 * ranks + 1, 9)  # a halo reaches past the next rank
    return [*result, SplitTask(tall, ranks, int(rng.integers(1000)))]


def filters_findings(forward, backward, name):
    """Return what holds for the cut by filters."""
    laws = {FILTERS_Y: _filters_y, FILTERS_D: _filters_d}
    return _findings(forward, backward, name, False, laws, FILTERS_B)


def rows_findings(forward, backward, name):
    """Return what holds for the cut by rows."""
    laws = {ROWS_Y: _rows_y, ROWS_DX: _rows_dx, ROWS_DW: _rows_dw}
    return _findings(forward, backward, name, True, laws, ROWS_B)


def findings(given, name):
    """Return what holds for all that is handed in: functions by their names in NAMES."""
    ff, fb, rf, rb, answers = (given[each] for each in NAMES)
    cuts = [*filters_findings(ff, fb, name), *rows_findings(rf, rb, name)]
    return [*cuts, *answers_findings(answers, name)]


def check_filters(forward, backward, name):
    """Return the findings on the cut by filters for the page."""
    return show(filters_findings(forward, backward, name), "Your split by filters")


def check_rows(forward, backward, name):
    """Return the findings on the cut by rows for the page."""
    return show(rows_findings(forward, backward, name), "Your split by rows")


def check_answers(answers, name):
    """Return the findings on the answers for the page."""
    return show(answers_findings(answers, name), "Which is cheaper?")


def _findings(forward, backward, name, by_rows, laws, target):
    """Each law on all tasks, forward and then backward; what stops one stops those after it."""
    first, *others = laws
    own, outputs = tasks(name), []
    try:
        for task in own:
            outputs.append(emulate_forward(forward, task, by_rows))
            words = laws[first](task, outputs[-1])
            if words:
                result = broken(first, f"{task.words()}. {words}")
                return [result, *(later(law, AS_ABOVE) for law in (*others, target))]
    except LabError as error:
        return [broken(first, str(error)), *(later(law, AS_ABOVE) for law in (*others, target))]
    result, back = [kept(first, _all(own))], []
    try:
        for task, made in zip(own, outputs, strict=True):
            back.append(emulate_backward(backward, made.second, task, by_rows))
    except LabError as error:
        rest = (law for law in (*others[1:], target))
        return [*result, broken(others[0], str(error)), *(later(law, AS_ABOVE) for law in rest)]
    for law in others:
        judged = [(task, laws[law](task, made)) for task, made in zip(own, back, strict=True)]
        wrong = [f"{task.words()}. {words}" for task, words in judged if words]
        result.append(broken(law, wrong[0]) if wrong else kept(law, _all(own)))
    return [*result, _bytes(target, own, outputs, back, by_rows, passed(result))]


def _all(own):
    shapes = ", ".join(f"{t.layer.kernel}/{t.layer.stride}/{t.layer.padding}" for t in own)
    return f"On all shapes (kernel/stride/padding {shapes})."


def _filters_y(task, made):
    return filters_off(task, made.first)


def _filters_d(task, made):
    return filter_gradients_off(task, made.first, made.second)


def _rows_y(task, made):
    return outputs_off(task, made.first)


def _rows_dx(task, made):
    return input_gradient_off(task, made.first)


def _rows_dw(task, made):
    return weight_gradient_off(task, made.second)


def _bytes(law, own, outputs, back, by_rows, right):
    """Whether the passes move no more than they must."""
    ratios = []
    for number, made in enumerate((outputs, back)):
        least = sum(least_moved(task, by_rows)[number] for task in own)
        ratios.append(sum(each.moved for each in made) / least)
    words = f"Forward moves {ratios[0]:.2f} times what has to move, backward {ratios[1]:.2f} times"
    if not right:
        return later(law, f"{words}; this counts once the results are right.")
    if max(ratios) > MARGIN:
        return broken(law, f"{words}. Who needs everything that is sent?")
    if min(ratios) < 0.5:
        return broken(
            law, f"{words}. How did the rest get there? On real ranks only comm is shared."
        )
    return kept(law, f"{words}.")


class Layer(NamedTuple):
    """A layer of a network of 4-byte numbers to be cut: kernel 3, stride 1, padding 1, square images."""

    channels: int
    filters: int
    side: int
    samples: int
    ranks: int
    alpha: float  # s
    beta: float  # s/B

    def x(self):
        return 4 * self.samples * self.channels * self.side**2

    def y(self):
        return 4 * self.samples * self.filters * self.side**2

    def w(self):
        return 4 * self.filters * self.channels * 9

    def face(self):
        return 4 * self.samples * self.channels * self.side


@cache
def layers_of(name):
    """Return the learner's own three layers, one early in a network, one in its middle, one late."""
    rng = np.random.default_rng([seed_of(name), 5])
    ranks, samples = int(rng.choice([4, 8])), int(rng.choice([4, 8, 16]))
    alpha, beta = float(rng.integers(2, 11)) * 1e-6, 1 / (float(rng.integers(5, 26)) * 1e9)
    channels, filters, side = (
        int(rng.choice(some)) for some in ((16, 24, 32), (32, 48, 64), (112, 128, 160))
    )
    early = Layer(channels, filters, side, samples, ranks, alpha, beta)
    late = Layer(512, 512, 7, samples, ranks, alpha, beta)
    while True:  # so near to each other that a look does not decide, but not nearer
        middle = early._replace(channels=256, filters=256, side=int(rng.integers(7, 33)))
        ratio = seconds(middle)["filters"] / seconds(middle)["rows"]
        if 1.25 < max(ratio, 1 / ratio) < 2.5:
            return {"early": early, "middle": middle, "late": late}


@cache
def _ring(name, layer, size):
    plan = schedule(name, layer.ranks, size // 4)
    return price(plan, layer.alpha, layer.beta, itemsize=4).total


@cache
def _halo(layer, faces=2):
    plan = schedule("halo_exchange", layer.ranks, faces * layer.face() // 4, dimensions=1)
    return price(plan, layer.alpha, layer.beta, itemsize=4).total


def seconds(layer):
    """Return the seconds of the exchanges of a step, forward and backward, by cut; priced by the library."""
    return {
        "filters": _ring("ring_allgather", layer, layer.y()) + _ring("ring", layer, layer.x()),
        "rows": 2 * _halo(layer) + _ring("ring", layer, layer.w()),
    }


def _slips(layer, cut):
    """Yield what a number may have left out, and that number."""
    right = seconds(layer)[cut]
    if cut == "filters":
        gather, total = _ring("ring_allgather", layer, layer.y()), _ring("ring", layer, layer.x())
        yield "Backward exchanges something as well.", gather
        yield "Forward exchanges something as well.", total
        share = _ring("ring_allgather", layer, layer.y() // layer.ranks)
        yield "n is the size that every rank has in the end, not one rank's part.", share + total
        yield (
            "An allreduce moves its array twice, once to sum it and once to distribute the sum.",
            gather + total / 2,
        )
        yield "Which array do all ranks have to sum here?", gather + _ring("ring", layer, layer.w())
    else:
        halo, total = _halo(layer), _ring("ring", layer, layer.w())
        yield "The gradients of the weights have to be summed as well.", 2 * halo
        yield "Backward returns the gradients of the halo to its owner.", halo + total
        yield "Halos are exchanged as well.", total
        yield (
            "An allreduce moves its array twice, once to sum it and once to distribute the sum.",
            2 * halo + total / 2,
        )
        one = layer.alpha + layer.face() * layer.beta
        yield "A rank in the middle has two neighbors.", 2 * one + total
    yield "Numbers take 4 B here.", seconds(layer._replace(beta=2 * layer.beta))[cut]
    whole = layer._replace(beta=layer.beta * layer.ranks / (layer.ranks - 1))
    halos = 2 * _halo(layer) - 2 * _halo(whole) if cut == "rows" else 0.0
    yield "Only (p-1)/p of n bytes are sent: each rank has its part.", seconds(whole)[cut] + halos
    yield "A batch has more than one sample.", seconds(layer._replace(samples=1))[cut]
    yield "Latency is missing.", seconds(layer._replace(alpha=0.0))[cut]
    other = "rows" if cut == "filters" else "filters"
    yield f"That is the time of the split by {other}.", seconds(layer)[other]
    yield "The answer is in seconds: this is a thousand times too large.", 1e3 * right
    yield "The answer is in seconds: this is a million times too large.", 1e6 * right


def layers(name):
    """Return the learner's layers and machine in words."""
    lines = [
        f"{key}: {own.channels} channels in, {own.filters} filters, {own.side} x {own.side}"
        for key, own in layers_of(name).items()
    ]
    some = next(iter(layers_of(name).values()))
    return say(
        f"{some.ranks} ranks on a ring, alpha = {show_quantity(some.alpha, 's')} a message,"
        f" {show_quantity(1 / some.beta, 'B/s')}; {some.samples} samples, numbers of 4 B, kernel 3 x 3,"
        " stride 1, padding 1.\n" + "\n".join(lines)
    )


def answers_findings(answers, name):
    """Return whether the answers are those of the library: layer -> (the cheaper cut, its seconds)."""
    try:
        given = answers()
        chosen = {key: (given[key][0], float(given[key][1])) for key in layers_of(name)}
    except Exception as error:
        words = (
            f"{type(error).__name__}: {error}. answers() has to return a split and its seconds for "
            "each of"
        )
        return [broken(CHEAPER, f"{words} {', '.join(layers_of(name))}.")]
    for key, layer in layers_of(name).items():
        (cut, took), price_of = chosen[key], seconds(layer)
        if cut not in price_of:
            words = f"{key}: {cut!r} is not a split; there are {' and '.join(map(repr, price_of))}."
            return [broken(CHEAPER, words)]
        if cut != min(price_of, key=price_of.get):
            words = (
                f"{key}: not by {cut}. A rank's images are {layer.x() // 4:,} numbers, its weights"
                f" {layer.w() // 4:,}; which of them travel in which split, and how often?"
            )
            return [broken(CHEAPER, words)]
        if not isfinite(took):
            return [broken(CHEAPER, f"{key}: {took} is not a time in seconds.")]
        if abs(took - price_of[cut]) > CLOSE * price_of[cut]:
            slips = (
                words for words, wrong in _slips(layer, cut) if abs(took - wrong) <= 1e-2 * wrong
            )
            size = "large" if took > price_of[cut] else "small"
            shown = f"{key}: by {cut} is right; {took:.4g} s is too {size}. {next(slips, '')}"
            return [broken(CHEAPER, shown.strip())]
    return [kept(CHEAPER, "; ".join(f"{key} by {cut}" for key, (cut, _) in chosen.items()) + ".")]


def ratio(name, which="early"):
    """Return how many times as long the dearer cut of a layer takes as the cheaper one."""
    return max(seconds(layers_of(name)[which]).values()) / min(
        seconds(layers_of(name)[which]).values()
    )


def on_ranks(name, *functions, ranks=RANKS):
    """Save the cells as step.py and run them on MPI ranks, once the results are right."""
    result = findings(dict(zip(NAMES, functions, strict=True)), name)
    if not all(each.right for each in result if each.law not in (FILTERS_B, ROWS_B, CHEAPER)):
        return say("Not yet: the results on emulated ranks have to be right first.")
    return save_and_run(HERE, name, functions, ranks)


def main():
    """Check step.py on the ranks there are; on one, on emulated ones."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    file, name = arguments("step.py", '"your name"')
    given = handed_in(file, NAMES if comm.size == 1 else NAMES[:4])
    if comm.size == 1:
        end_with(findings(given, name))
    found = {}
    own = [SplitTask(each.layer, comm.size, each.seed) for each in tasks(name, comm.size)]
    emulated_first(comm, lambda: _both_cuts(given, own))
    for task in own:
        for by_rows, (forward, backward) in enumerate((NAMES[:2], NAMES[2:4])):
            y, memory, _ = rank_forward(given[forward], task, bool(by_rows), comm)
            dx, dw, _ = rank_backward(given[backward], memory, task, bool(by_rows), comm)
            every = comm.gather((y, dx, dw))
            if comm.rank == 0:
                ys, dxs, dws = map(list, zip(*every, strict=True))
                _tell(found, task, by_rows, Ended(ys, [], 0), Ended(dxs, dws, 0))
    if comm.rank == 0:
        print(
            f"{comm.size} real ranks\n{report([found[law] for law in (*FILTERS[:2], *ROWS[:3])])}"
        )


def _both_cuts(given, own):
    """Run all four functions on emulated ranks."""
    for task in own:
        for by_rows, (forward, backward) in enumerate((NAMES[:2], NAMES[2:4])):
            ahead = emulate_forward(given[forward], task, bool(by_rows))
            emulate_backward(given[backward], ahead.second, task, bool(by_rows))


def _tell(found, task, by_rows, ahead, back):
    """Note what holds for one task on real ranks; what is broken stays so."""
    laws = {
        ROWS_Y: _rows_y(task, ahead),
        ROWS_DX: _rows_dx(task, back),
        ROWS_DW: _rows_dw(task, back),
    }
    if not by_rows:
        laws = {FILTERS_Y: _filters_y(task, ahead), FILTERS_D: _filters_d(task, back)}
    for law, words in laws.items():
        if words and (law not in found or found[law].right):
            found[law] = broken(law, f"{task.words()}. {words}")
        found.setdefault(law, kept(law, "On all shapes."))


if __name__ == "__main__":
    end_together(main)
