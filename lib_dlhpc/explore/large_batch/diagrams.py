"""Diagrams of the slides of module 06: steps of larger batches, and how rules are compared."""

from lib_dlhpc.explore.large_batch.rules import longer_step, mean, times_base
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import stacked

SAMPLES, FACTORS = 4000, (1, 4, 32)
SUMMED = 4  # ranks whose gradients are summed


def fewer() -> kit.Diagram:
    """Return what an epoch is with larger batches, and what linear scaling makes of the rate."""
    batches = [times_base(factor) for factor in FACTORS]
    rows = [
        kit.Row("steps of an epoch", [f"{SAMPLES // batch:,}" for batch in batches]),
        kit.Row(
            "learning rate, linear scaling", [f"{factor} × η" for factor in FACTORS], kit.ORANGE
        ),
        kit.Row("variance of a gradient", [f"σ²/{batch:,}" for batch in batches], kit.GREEN),
    ]
    return kit.held([f"batch {batch:,}" for batch in batches], rows)


def collapsed() -> kit.Diagram:
    """Return the test accuracy that linear scaling reaches with the same batches."""
    rows = []
    for factor in FACTORS:
        reached = mean("linear", times_base(factor)).mean
        fill = kit.BLUE if factor == 1 else kit.ORANGE
        rows.append(
            kit.Lane(f"batch {times_base(factor):,}", [kit.Bar(0, reached, f"{reached:.0%}", fill)])
        )
    return kit.lanes(rows, "test accuracy", (1.0, "100%"))


def hidden() -> kit.Diagram:
    """Return how long the first step is with a gradient that is four times as long, for each rule."""
    rows = {rule: {"first step": longer_step(rule.lower(), SUMMED)} for rule in ("SGD", "LARS")}
    return stacked(rows, {"first step": kit.ORANGE}, "", "length, over that of the right gradient")


DIAGRAMS = kit.written(globals()) | {
    "thirty_two_times: answer": collapsed,
    "How far can the batch grow?": fewer,
    "hidden_bug: answer": hidden,
}
