"""Diagrams of the slides of module 06: steps of larger batches, and how rules are compared."""

from lib_dlhpc.explore.large_batch.rules import times_base
from lib_dlhpc.explore.slides.diagram import GREEN, ORANGE, VIOLET, Diagram, Node, Row, held, linked

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


DIAGRAMS = {"How far can the batch grow?": fewer, "How far does each rule work?": compared}
