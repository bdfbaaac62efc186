"""Diagrams of amounts by their parts, to one scale; a part is named in its bar where there is room, else below.

stacked({"ring": {"latency": 30e-6, "bytes": 1.2e-3}}, {"latency": ORANGE, "bytes": BLUE}, "s", "time")
"""

from collections.abc import Mapping

from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.spec.units import format_quantity

# Shares of a diagram: the width of a letter in a bar, and of the bar's edges.
LETTER, EDGE = 0.021, 0.03
COLORS = {fill: name for name, fill in kit.FILLS.items()} | {
    kit.FORWARD: "light blue",
    kit.BACKWARD: "blue",
    kit.UPDATE: "slate",
}
TERMS = {  # of a step: what a slide calls them, and their fill
    "forward": ("forward", kit.FORWARD),
    "backward": ("backward", kit.BACKWARD),
    "update": ("update", kit.UPDATE),
    "waiting for the slowest": ("waits", kit.RED),
    "exposed communication": ("exchange", kit.ORANGE),
    "pipeline bubble": ("bubble", kit.GRAY),
}
LEAST = 0.005  # of the largest amount: a part that is not seen is not named


def stacked(
    rows: Mapping[str, Mapping[str, float]],
    inks: Mapping[str, str],
    unit: str,
    axis: str,
    side: float = kit.SIDE,
) -> kit.Diagram:
    """Return a lane for each row, its parts end to end, in `unit`; its sum is below its name."""
    most = max(sum(parts.values()) for parts in rows.values())
    drawn, unnamed = list[kit.Lane](), dict[str, str]()
    for name, parts in rows.items():
        at, bars = 0.0, list[kit.Bar]()
        for part, amount in parts.items():
            wide = (1 - side) * amount / most
            fits = wide > LETTER * len(part) + EDGE
            bars.append(kit.Bar(at, at + amount, part if fits else "", inks[part]))
            if not fits and amount > LEAST * most:
                unnamed[part] = COLORS[inks[part]]
            at += amount
        drawn.append(kit.Lane(f"{name}\n{format_quantity(at, unit)}", bars))
    key = "".join(f"; {color}: {part}" for part, color in unnamed.items())
    said = [
        f"{name}: "
        + ", ".join(f"{part} {format_quantity(own, unit)}" for part, own in parts.items() if own)
        for name, parts in rows.items()
    ]
    return kit.lanes(drawn, axis + key, side=side)._replace(words="; ".join([*said, axis]))


def of_steps(steps: Mapping[str, Breakdown], side: float = kit.SIDE) -> kit.Diagram:
    """Return where the time of predicted steps goes, a lane for each."""
    rows = {
        name: {said: float(step.terms[term]) for term, (said, _) in TERMS.items()}
        for name, step in steps.items()
    }
    return stacked(rows, dict(TERMS.values()), "s", "time of a step", side)
