"""The trainer against its limits: sgemm rate, textbook convolutions, an unrecorded step, the memory ledger.

Run by benchmarks/trainer.py; each function prints lines of its table.
"""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lib_dlhpc.layers import Context, Saved, conv
from lib_dlhpc.prediction.memory.device_ledger import ledger
from lib_dlhpc.spec.experiment import loads, read_model
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.training import Training
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.record import Recorder


class Effort(NamedTuple):
    """How much is measured: turns, s of each, how many convolutions, which share of the batches that need memory."""

    rounds: int = 7
    spell: float = 0.4
    convolutions: int = 5
    share: float = 1.0


QUICK = Effort(1, 0.002, 1, 0.02)


def line(name: str, ours: str, peer: str, ratio: str, wanted: str) -> None:
    """Print a line of the table."""
    print(f"{name:<26} {ours:>13} {peer:>13} {ratio:>8}   {wanted}", flush=True)


def stepper(model: Model, batch: int, recorder: Recorder | None = None) -> Callable[[], None]:
    """Return a function that trains one step."""
    network = Network(model, np.float32)
    optimizer = Optimizer("momentum", Training())
    rng = np.random.default_rng(0)
    shape, classes = (batch, *model.input_shape), model.output_shape[-1]
    text = model.layers[0].kind == "embedding"
    x = rng.integers(0, classes, shape) if text else rng.standard_normal(shape, np.float32)
    y = rng.integers(0, classes, (batch, *model.output_shape[:-1]))

    def step() -> None:
        begin = time.perf_counter()
        _, dy = softmax_cross_entropy(network.forward(x), y, batch)
        middle = time.perf_counter()
        network.backward(dy)
        if recorder is not None:
            end = time.perf_counter()
            recorder.add("forward", "forward", begin, middle)
            recorder.add("backward", "backward", middle, end)
            recorder.begin("bucket 1", 0)
            recorder.end("bucket 1")
        optimizer.update(network, 0.01)

    return step


def seconds(step: Callable[[], None], spell: float) -> float:
    """Return the mean CPU seconds of a step over a spell."""
    step()
    steps, start = 0, time.process_time()
    while time.process_time() - start < spell:
        step()
        steps += 1
    return (time.process_time() - start) / steps


def of_sgemm(effort: Effort) -> None:
    """Print which share of the rate of a large product a dense layer's step reaches."""
    a, b = (np.ones((1024, 1024), np.float32) for _ in range(2))
    out = np.empty_like(a)
    model = read_model({"family": "mlp", "widths": [1024, 1024, 1024, 10]})
    batch = int(512 * effort.share) + 1
    step = stepper(model, batch)
    # The first layer's input has no gradient.
    flop = batch * (3 * model.forward_flop - model.layers[0].forward_flop)
    rates, peaks = [], []
    for _ in range(effort.rounds):
        peaks.append(2 * 1024**3 / seconds(lambda: np.matmul(a, b, out=out), effort.spell))
        rates.append(flop / seconds(step, effort.spell))
    share = median(rate / peak for rate, peak in zip(rates, peaks, strict=True))
    rate, peak = (f"{median(values) / 1e9:.0f} GFLOP/s" for values in (rates, peaks))
    line("dense 1024 x 1024", rate, peak, f"{share:.0%}", "60% of sgemm")


# channels in, channels out, space, kernel, padding, batch
CONVOLUTIONS = (
    (1, 6, 28, 5, 2, 32),
    (6, 16, 14, 5, 0, 32),
    (16, 16, 32, 3, 1, 32),
    (32, 32, 16, 3, 1, 32),
    (64, 64, 8, 3, 1, 32),
)


def of_textbook(effort: Effort) -> None:
    """Print how much faster a convolution's forward and backward are than in their textbook form."""
    for inputs, outputs, space, kernel, padding, batch in CONVOLUTIONS[: effort.convolutions]:
        entry = {"kind": "conv", "channels": outputs, "kernel": kernel, "padding": padding}
        entry |= {"bias": False}
        shape = [inputs, space, space]
        model = read_model({"family": "sequential", "input": shape, "layers": [entry]})
        layer, saved, rng = conv.Conv(model.layers[0]), Saved(Context()), np.random.default_rng(0)
        weights = {name: rng.normal(size=s).astype(np.float32) for name, s in layer.shapes.items()}
        gradients = {name: np.empty_like(weight) for name, weight in weights.items()}
        x = rng.normal(size=(*shape, batch)).astype(np.float32)
        dy = rng.normal(size=(*model.output_shape, batch)).astype(np.float32)
        images, errors = (np.ascontiguousarray(np.moveaxis(a, -1, 0)) for a in (x, dy))
        own = partial(_own, layer, weights, gradients, saved, x, dy)
        textbook = partial(_textbook, images, weights["weight"], errors, padding)
        for found, expected in zip(own(), textbook(), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-2)
        spell = effort.spell / 2
        pairs = [(seconds(own, spell), seconds(textbook, spell)) for _ in range(effort.rounds)]
        ours, theirs = (f"{1e3 * median(times):.2f} ms" for times in zip(*pairs, strict=True))
        name = f"conv {inputs}-{outputs}, {space} x {space}, {kernel} x {kernel}"
        line(name, ours, theirs, f"{median(t / o for o, t in pairs):.1f}x", "3x textbook")


def _own(
    layer: Any, weights: Any, gradients: Any, saved: Saved, x: Any, dy: Any
) -> tuple[Any, ...]:
    """Forward and backward, with results as the textbook has them."""
    saved.context.arena.begin("step")
    y = layer.forward(weights, saved, x)
    dx = layer.backward(weights, gradients, saved, dy)
    return np.moveaxis(y, -1, 0), gradients["weight"], np.moveaxis(dx, -1, 0)


def _textbook(x: Any, w: Any, dy: Any, padding: int) -> tuple[Any, ...]:
    """Forward and backward as courses write them: windows that slide, (batch, channels, height, width)."""
    kernel = w.shape[-1]
    windows = _windows(x, kernel, padding)
    y = np.tensordot(windows, w, axes=((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    dw = np.tensordot(dy, windows, axes=((0, 2, 3), (0, 2, 3)))
    around = _windows(dy, kernel, kernel - 1 - padding)
    dx = np.tensordot(around, w[:, :, ::-1, ::-1], axes=((1, 4, 5), (0, 2, 3)))
    return y, dw, dx.transpose(0, 3, 1, 2)


def _windows(x: Any, kernel: int, padding: int) -> Any:
    border = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return sliding_window_view(np.pad(x, border), (kernel, kernel), axis=(2, 3))


def recorder(effort: Effort) -> None:
    """Print the cost of recording a step's events."""
    model = read_model("mlp-mnist")
    plain, noted = stepper(model, 128), stepper(model, 128, Recorder())
    both = (noted, plain)
    pairs = [[seconds(step, effort.spell) for step in both] for _ in range(2 * effort.rounds + 1)]
    ours, without = (f"{1e3 * median(times):.2f} ms" for times in zip(*pairs, strict=True))
    line("step recorded", ours, without, f"{median(a / b for a, b in pairs) - 1:+.1%}", "below 3%")


def memory(cases: dict[str, tuple[Any, int]], effort: Effort) -> None:
    """Print the peak of three steps, as numpy reports it to tracemalloc, beside the ledger's prediction.

    Nothing is left out, such as what convolutions take to compute; each case at two sizes of batch. The
    first step's arrays, which tracemalloc does not see, are no more at once than those of the others.
    """
    for name, (entry, most) in cases.items():
        model, largest = read_model(entry), max(2, int(most * effort.share))
        for batch in (largest, largest // 2):
            tracemalloc.start()
            step = stepper(model, batch)
            for _ in range(3):
                step()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            predicted = _predicted(model, batch)
            shown = [f"{size / 1e6:.1f} MB" for size in (peak, predicted)]
            line(f"{name}, batch {batch}", *shown, f"{peak / predicted - 1:+.1%}", "10%")


def _predicted(model: Model, batch: int) -> float:
    experiment = loads(
        '[model]\nname = "lenet5"\n[dataset]\nname = "digits"\n[machine]\nname = "laptop"\n'
        f"[strategy]\ndevices_per_node = 1\nbatch = {batch}\n"
    )
    dataset = replace(experiment.dataset, sample_shape=model.input_shape)
    terms = ledger(replace(experiment, model=model, dataset=dataset))
    return sum(float(size) for term, size in terms.items() if term != "driver and workspace")
