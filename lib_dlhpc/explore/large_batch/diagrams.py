"""Diagrams of the slides of module 06: steps of larger batches, and how rules are compared."""

from lib_dlhpc.explore.large_batch.rules import mean, times_base
from lib_dlhpc.explore.slides.diagram import (
    BLUE,
    GREEN,
    ORANGE,
    VIOLET,
    Bar,
    Diagram,
    Lane,
    Node,
    Row,
    held,
    lanes,
    linked,
)

SAMPLES, FACTORS = 4000, (1, 4, 32)


def fewer() -> Diagram:
    """Return what an epoch is with larger batches, and what linear scaling makes of the rate."""
    batches = [times_base(factor) for factor in FACTORS]
    rows = [
        Row("steps of an epoch", [f"{SAMPLES // batch:,}" for batch in batches]),
        Row("learning rate, linear scaling", [f"{factor} × η" for factor in FACTORS], ORANGE),
        Row("variance of a gradient", [f"σ²/{batch:,}" for batch in batches], GREEN),
    ]
    return held([f"batch {batch:,}" for batch in batches], rows)


def compared() -> Diagram:
    """Return how a rule is tuned before it is compared."""
    nodes = {
        "train": Node(0.22, 0.18, f"{SAMPLES:,} training images", wide=0.4, high=0.2),
        "valid": Node(0.78, 0.18, "validation split, other seeds", VIOLET, 0.4, 0.2),
        "tune": Node(0.5, 0.52, "each rule: choose its rate and warm-up", ORANGE, 0.56, 0.18),
        "test": Node(0.5, 0.86, "train with ten seeds, then test once", GREEN, 0.56, 0.18),
    }
    return linked(
        nodes, [("train", "valid"), ("valid", "tune"), ("train", "tune"), ("tune", "test")]
    )


def collapsed() -> Diagram:
    """Return the test accuracy that linear scaling reaches with the same batches."""
    rows = []
    for factor in FACTORS:
        reached = mean("linear", times_base(factor)).mean
        fill = BLUE if factor == 1 else ORANGE
        rows.append(
            Lane(f"batch {times_base(factor):,}", [Bar(0, reached, f"{reached:.0%}", fill)])
        )
    return lanes(rows, "test accuracy", (1.0, "100%"))


DIAGRAMS = {
    "thirty_two_times: answer": collapsed,
    "How far can the batch grow?": fewer,
    "How far does each rule work?": compared,
}
