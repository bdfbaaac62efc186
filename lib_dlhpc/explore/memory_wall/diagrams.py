"""Diagrams of the slides of module 08: what training holds, what ZeRO shards, an offload and its host link."""

from lib_dlhpc.explore.memory_wall import ledger
from lib_dlhpc.explore.memory_wall.derivation import RANKS, STATE
from lib_dlhpc.explore.memory_wall.derivation import held as held_with
from lib_dlhpc.explore.slides.diagram import (
    BLUE,
    GREEN,
    ORANGE,
    VIOLET,
    Bar,
    Diagram,
    Lane,
    Row,
    held,
    lanes,
)
from lib_dlhpc.spec.units import format_quantity as show

LAYERS, LINK, SHARDED = 4, 1.4, {"optimizer state": 1, "gradients": 2, "weights": 3}
FILLS = dict(zip(STATE, (BLUE, VIOLET, GREEN, ORANGE), strict=True))


def training() -> Diagram:
    """Return what a file of weights takes, and what training takes; activations are asked for."""
    terms = ledger.fullest(ledger.Setting()).terms
    rows = [
        Row(name, ("", show(terms[name], "B")), FILLS[name]) for name in STATE if terms.get(name)
    ]
    rows[0] = rows[0]._replace(cells=[rows[0].cells[1]] * 2)
    rows.append(Row("activations", ("", "?"), "FFFFFF"))
    return held(("its file", "in training"), rows)


def sharded() -> Diagram:
    """Return what a replica has of the state with each stage of ZeRO, and its bytes."""
    rows = [
        Row(name, [f"1/{RANKS}" if zero >= first else "all" for zero in range(4)], FILLS[name])
        for name, first in SHARDED.items()
    ]
    rows.append(Row("in bytes", [show(held_with(zero), "B") for zero in range(4)], "FFFFFF"))
    return held(("no ZeRO", "ZeRO 1", "ZeRO 2", "ZeRO 3"), rows)


def offloaded() -> Diagram:
    """Return layers whose activations leave during forward and return before backward, over a link that is too slow."""
    out, end = list[Bar](), 0.0
    for layer in range(LAYERS - 1):
        start = max(end, layer + 1.0)
        end = start + LINK
        out.append(Bar(start, end, f"out {layer + 1}", ORANGE))
    forward = [Bar(k, k + 1, f"F{k + 1}") for k in range(LAYERS)]
    backward, back, now = (
        [Bar(LAYERS, LAYERS + 2, f"B{LAYERS}", GREEN)],
        list[Bar](),
        float(LAYERS + 2),
    )
    for layer in reversed(range(LAYERS - 1)):
        end += LINK
        back.append(Bar(end - LINK, end, f"in {layer + 1}", VIOLET))
        now = max(now, end)
        backward.append(Bar(now, now + 2, f"B{layer + 1}", GREEN))
        now += 2
    return lanes([Lane("GPU", [*forward, *backward]), Lane("host link", [*out, *back])], "time")


DIAGRAMS = {
    "What if it does not fit?": training,
    "Which way around the wall?": sharded,
    "How fast must the host link be?": offloaded,
}
