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


def compared() -> kit.Diagram:
    """Return how a rule is tuned before it is compared."""
    nodes = {
        "train": kit.Node(0.22, 0.18, f"{SAMPLES:,} training images", wide=0.4, high=0.2),
        "valid": kit.Node(0.78, 0.18, "validation split, other seeds", kit.VIOLET, 0.4, 0.2),
        "tune": kit.Node(
            0.5, 0.52, "each rule: choose its rate and warm-up", kit.ORANGE, 0.56, 0.18
        ),
        "test": kit.Node(0.5, 0.86, "train with ten seeds, then test once", kit.GREEN, 0.56, 0.18),
    }
    return kit.linked(
        nodes, [("train", "valid"), ("valid", "tune"), ("train", "tune"), ("tune", "test")]
    )


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


DIAGRAMS = {
    "thirty_two_times: answer": collapsed,
    "How far can the batch grow?": fewer,
    "How far does each rule work?": compared,
    "hidden_bug: answer": hidden,
}
