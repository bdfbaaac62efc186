"""Diagrams of the slides of module 08: what training and fine-tuning hold, what ZeRO shards, an offload."""

from lib_dlhpc.explore.memory_wall import adapters, ledger, live
from lib_dlhpc.explore.memory_wall.derivation import RANKS, STATE
from lib_dlhpc.explore.memory_wall.derivation import held as held_with
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import stacked
from lib_dlhpc.spec.units import format_quantity as show

LORA = adapters.tuned(lora=adapters.RANK)
WIDTH = LORA.experiment.model.layers[0].attributes["features"]
LAYERS, LINK, SHARDED = 4, 1.4, {"optimizer state": 1, "gradients": 2, "weights": 3}
FILLS = dict(zip(STATE, (kit.BLUE, kit.VIOLET, kit.GREEN, kit.ORANGE), strict=True))


def training() -> kit.Diagram:
    """Return what a file of weights takes, and what training takes; activations are asked for."""
    terms = ledger.fullest(ledger.Setting()).terms
    rows = [
        kit.Row(name, ("", show(terms[name], "B")), FILLS[name])
        for name in STATE
        if terms.get(name)
    ]
    rows[0] = rows[0]._replace(cells=[rows[0].cells[1]] * 2)
    rows.append(kit.Row("activations", ("", "?"), "FFFFFF"))
    return kit.held(("its file", "in training"), rows)


def sharded() -> kit.Diagram:
    """Return what a replica has of the state with each stage of ZeRO, and its bytes."""
    rows = [
        kit.Row(name, [f"1/{RANKS}" if zero >= first else "all" for zero in range(4)], FILLS[name])
        for name, first in SHARDED.items()
    ]
    rows.append(kit.Row("in bytes", [show(held_with(zero), "B") for zero in range(4)], "FFFFFF"))
    return kit.held(("no ZeRO", "ZeRO 1", "ZeRO 2", "ZeRO 3"), rows)


def offloaded() -> kit.Diagram:
    """Return layers whose activations leave during forward and return before backward, over a link that is too slow."""
    out, end = list[kit.Bar](), 0.0
    for layer in range(LAYERS - 1):
        start = max(end, layer + 1.0)
        end = start + LINK
        out.append(kit.Bar(start, end, f"out {layer + 1}", kit.ORANGE))
    forward = [kit.Bar(k, k + 1, f"F{k + 1}", kit.FORWARD) for k in range(LAYERS)]
    backward, back, now = (
        [kit.Bar(LAYERS, LAYERS + 2, f"B{LAYERS}", kit.BACKWARD)],
        list[kit.Bar](),
        float(LAYERS + 2),
    )
    for layer in reversed(range(LAYERS - 1)):
        end += LINK
        back.append(kit.Bar(end - LINK, end, f"in {layer + 1}", kit.VIOLET))
        now = max(now, end)
        backward.append(kit.Bar(now, now + 2, f"B{layer + 1}", kit.BACKWARD))
        now += 2
    return kit.lanes(
        [kit.Lane("GPU", [*forward, *backward]), kit.Lane("host link", [*out, *back])],
        "time",
        unfolds=True,
    )


def frozen() -> kit.Diagram:
    """Return what a GPU holds if all weights are trained, or adapters only; their activations are asked for."""
    every, lora = adapters.tuned(), LORA
    rows = [
        kit.Row("weights", [show(float(each.memory["weights"]), "B") for each in (every, lora)]),
        kit.Row(
            "gradients and state",
            [show(adapters.state(each), "B") for each in (every, lora)],
            kit.ORANGE,
        ),
        kit.Row("activations", (show(float(every.memory["activations"]), "B"), "?"), "FFFFFF"),
    ]
    return kit.held(("all weights", f"adapters of rank {adapters.RANK}"), rows)


def tuned() -> kit.Diagram:
    """Return what a GPU holds for each way to fine-tune, to one scale."""
    rows = {}
    for name in ("all weights", adapters.QUERIES, f"rank {adapters.RANK}, all recomputed"):
        step = adapters.tuned(**adapters.WAYS[name])
        parts = {
            "weights": float(step.memory["weights"]),
            "gradients, state": adapters.state(step),
            "activations": float(step.memory["activations"]),
        }
        rows[name] = parts | {"other": float(step.memory_total) - sum(parts.values())}
    inks = dict(zip(parts | {"other": 0}, (kit.BLUE, kit.ORANGE, kit.GREEN, kit.GRAY), strict=True))
    return stacked(rows, inks, "B", "memory of a GPU", side=0.34)


def under_the_cap() -> kit.Diagram:
    """Return the peak in core and out of core, by the ledger, and the cap."""
    own = live.Setting()
    peaks = {
        name: live.ledger(live.experiment(own, offload))
        for name, offload in (("in core", "none"), ("out of core", own.what))
    }
    said = {name: show(round(peak, -5), "B") for name, peak in peaks.items()}
    rows = [
        kit.Lane(
            f"{name}\n{said[name]}",
            [kit.Bar(0, peak, "", kit.ORANGE if peak > own.cap else kit.GREEN)],
        )
        for name, peak in peaks.items()
    ]
    cap = f"cap: {show(own.cap, 'B')}"
    words = "; ".join([*(f"{name}: {size}" for name, size in said.items()), cap])
    return kit.lanes(rows, "memory at the peak", (own.cap, cap))._replace(words=words)


DIAGRAMS = kit.written(globals()) | {
    "What if it does not fit?": training,
    "Which way around the wall?": sharded,
    "How fast must the host link be?": offloaded,
    "adapters": frozen,
    "adapters: answer": tuned,
    "out_of_core_peak: answer": under_the_cap,
}
