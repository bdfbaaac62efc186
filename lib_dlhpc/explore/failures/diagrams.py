"""Diagrams of the slides of module 09: a failure between checkpoints, two ways to save, versions of a network."""

from lib_dlhpc.explore.failures.live import EXAMPLE, expected
from lib_dlhpc.explore.failures.machine import Setting
from lib_dlhpc.explore.failures.network import Learner
from lib_dlhpc.explore.failures.versions import last_layer_bytes
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import stacked
from lib_dlhpc.spec.units import format_quantity as show

TRAIN, SAVE, RESTART, LOST, COPY, CHECK = 4.0, 1.4, 1.9, 2.0, 0.25, 1.0  # not to scale


def failed() -> kit.Diagram:
    """Return a run that saves its state, fails, and repeats what it has lost."""
    parts = (
        ("train", TRAIN, kit.BLUE),
        ("save", SAVE, kit.ORANGE),
        ("lost", LOST, kit.RED),
        ("restart", RESTART, kit.GRAY),
        ("repeat", LOST, kit.GREEN),
        ("train", TRAIN - LOST, kit.BLUE),
        ("save", SAVE, kit.ORANGE),
    )
    row, fails = kit.Lane("all GPUs", kit.in_turn(parts)), TRAIN + SAVE + LOST
    return kit.lanes([row], "time, not to scale", (fails, "one GPU fails"), side=0.13)


def stalls() -> kit.Diagram:
    """Return how long training stalls for a synchronous and for an asynchronous checkpoint."""
    write, step = 2 * SAVE, 1.6
    train, written = ("train", step, kit.BLUE), ("write", write, kit.ORANGE)
    copied = ("", COPY, kit.RED)
    rest = ("train", step + write - COPY, kit.BLUE)
    rows = [
        kit.Lane("synchronous", kit.in_turn([train, written, train])),
        kit.Lane("asynchronous", kit.in_turn([train, copied, rest])),
        kit.Lane("behind it", kit.in_turn([written], begin=step + COPY)),
    ]
    return kit.lanes(
        rows,
        "time, not to scale; red: a copy to host memory",
        (step + COPY + write, "durable"),
        side=0.22,
    )


def short_of_spares() -> kit.Diagram:
    """Return what three replicas do when a node of the second fails and no spare is left."""
    rows = [
        kit.Row("all wait", ("idle", "failed", "idle"), kit.GRAY),
        kit.Row("elastic", ("trains", "spares", "trains"), kit.BLUE),
    ]
    return kit.held(("replica 1", "replica 2", "replica 3"), rows)


def versions() -> kit.Diagram:
    """Return which chunks three versions of a network store if only its last layer is trained on."""
    rows = [
        kit.Row("layer 1", ("stored", "as in 1", "as in 1"), kit.BLUE),
        kit.Row("layer 2", ("stored", "as in 1", "as in 1"), kit.BLUE),
        kit.Row("last layer", ("stored", "stored", "stored"), kit.ORANGE),
        kit.Row("parent", ("none", "version 1", "version 2"), kit.GREEN),
    ]
    return kit.held(("version 1", "version 2", "version 3"), rows)


def spoiled() -> kit.Diagram:
    """Return a run that saves a wrong state until a check finds it, and repeats what it has trained since the last."""
    parts = (
        ("check", CHECK, kit.VIOLET),
        ("right", CHECK, kit.BLUE),
        ("wrong", CHECK, kit.RED),
        ("check", CHECK, kit.VIOLET),
        ("repeat all of it", 2 * CHECK, kit.GREEN),
    )
    row, strikes = kit.Lane("all GPUs", kit.in_turn(parts)), (2 * CHECK, "one GPU computes wrong")
    return kit.lanes([row], "time, not to scale", strikes, side=0.1)


def written() -> kit.Diagram:
    """Return the bytes of a version, and those that the next one writes if only its last layer has changed."""
    network = Learner().network
    whole, last = network.weights.nbytes, last_layer_bytes()
    rows = [
        kit.Lane("a version", [kit.Bar(0, whole, show(whole, "B"))]),
        kit.Lane("the next one writes", [kit.Bar(0, last, "", kit.ORANGE)]),
    ]
    return kit.lanes(rows, f"bytes; orange: {show(last, 'B')}", side=0.24)


def killed() -> kit.Diagram:
    """Return the undisturbed run, and what failures add to it by the formula."""
    run = {"start": EXAMPLE.startup, "train": EXAMPLE.seconds}
    lost = expected(Setting(), EXAMPLE) - sum(run.values())
    rows = {"undisturbed": run, "killed": {**run, "restarts, lost steps": lost}}
    inks = {"start": kit.GRAY, "train": kit.BLUE, "restarts, lost steps": kit.RED}
    return stacked(rows, inks, "s", "time of the run", 0.22)


DIAGRAMS = {
    "last_layer: answer": written,
    "How do you avoid losing a month?": failed,
    "How long must training stall?": stalls,
    "How many spare nodes?": short_of_spares,
    "What if a result is wrong, and nothing stops?": spoiled,
    "What else is a version good for?": versions,
    "killed_run: answer": killed,
}
