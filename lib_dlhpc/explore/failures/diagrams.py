"""Diagrams of the slides of module 09: a failure between checkpoints, two ways to save, versions of a network."""

from lib_dlhpc.explore.failures.network import Learner
from lib_dlhpc.explore.failures.versions import last_layer_bytes
from lib_dlhpc.explore.slides.diagram import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    RED,
    Bar,
    Diagram,
    Lane,
    Row,
    held,
    lanes,
)
from lib_dlhpc.spec.units import format_quantity as show

TRAIN, SAVE, RESTART, LOST, COPY = 4.0, 1.4, 1.9, 2.0, 0.25  # not to scale


def failed() -> Diagram:
    """Return a run that saves its state, fails, and repeats what it has lost."""
    bars, now = list[Bar](), 0.0
    parts = (
        ("train", TRAIN, BLUE),
        ("save", SAVE, ORANGE),
        ("lost", LOST, RED),
        ("restart", RESTART, GRAY),
        ("repeat", LOST, GREEN),
        ("train", TRAIN - LOST, BLUE),
        ("save", SAVE, ORANGE),
    )
    for name, takes, fill in parts:
        bars.append(Bar(now, now + takes, name, fill))
        now += takes
    fails = TRAIN + SAVE + LOST
    return lanes(
        [Lane("all GPUs", bars)], "time, not to scale", (fails, "one GPU fails"), side=0.13
    )


def stalls() -> Diagram:
    """Return how long training stalls for a synchronous and for an asynchronous checkpoint."""
    write, step = 2 * SAVE, 1.6
    rows = [
        Lane(
            "synchronous",
            [
                Bar(0, step, "train"),
                Bar(step, step + write, "write", ORANGE),
                Bar(step + write, 2 * step + write, "train"),
            ],
        ),
        Lane(
            "asynchronous",
            [
                Bar(0, step, "train"),
                Bar(step, step + COPY, "", RED),
                Bar(step + COPY, 2 * step + write, "train"),
            ],
        ),
        Lane("behind it", [Bar(step + COPY, step + COPY + write, "write", ORANGE)]),
    ]
    return lanes(
        rows,
        "time, not to scale; red: a copy to host memory",
        (step + COPY + write, "durable"),
        side=0.22,
    )


def versions() -> Diagram:
    """Return which chunks three versions of a network store if only its last layer is trained on."""
    rows = [
        Row("layer 1", ("stored", "as in 1", "as in 1"), BLUE),
        Row("layer 2", ("stored", "as in 1", "as in 1"), BLUE),
        Row("last layer", ("stored", "stored", "stored"), ORANGE),
        Row("parent", ("none", "version 1", "version 2"), GREEN),
    ]
    return held(("version 1", "version 2", "version 3"), rows)


def written() -> Diagram:
    """Return the bytes of a version, and those that the next one writes if only its last layer has changed."""
    network = Learner().network
    whole, last = network.weights.nbytes, last_layer_bytes()
    rows = [
        Lane("a version", [Bar(0, whole, show(whole, "B"))]),
        Lane("the next one writes", [Bar(0, last, "", ORANGE)]),
    ]
    return lanes(rows, f"bytes; orange: {show(last, 'B')}", side=0.24)


DIAGRAMS = {
    "last_layer: answer": written,
    "How do you avoid losing a month?": failed,
    "How long must training stall?": stalls,
    "What else is a version good for?": versions,
}
