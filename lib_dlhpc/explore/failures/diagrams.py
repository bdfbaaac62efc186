"""Diagrams of the slides of module 09: bytes of a version, a run that is killed; diagrams.toml has the others."""

from lib_dlhpc.explore.failures.live import EXAMPLE, expected
from lib_dlhpc.explore.failures.machine import Setting
from lib_dlhpc.explore.failures.network import Learner
from lib_dlhpc.explore.failures.versions import last_layer_bytes
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import stacked
from lib_dlhpc.spec.units import format_quantity as show


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


DIAGRAMS = kit.written(globals()) | {"last_layer: answer": written, "killed_run: answer": killed}
