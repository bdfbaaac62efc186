"""What a step costs by cause, in the names of a lab's hints."""

from collections.abc import Mapping

from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.spec.units import format_quantity


def step_costs(found: Breakdown, exposed: Mapping[str, str]) -> dict[str, float]:
    """Return the seconds of a step by cause. exposed: kinds of messages, and what a lab calls those not hidden."""
    again = float(found.recomputation)
    return {
        "computing": float(found.forward + found.backward) - again,
        "recomputation": again,
        "pipeline bubble": float(found.pipeline_bubble),
        "updates": float(found.update),
    } | {name: float(found.exposed.get(kind, 0.0)) for kind, name in exposed.items()}


def most_above(costs: Mapping[str, float], goal: Mapping[str, float]) -> tuple[str, str]:
    """Return the cause by which a step costs most above another one, and that in words."""
    more = {each: cost - goal[each] for each, cost in costs.items()}
    most = max(more, key=lambda each: more[each])
    return most, f"The largest difference: {most}, {format_quantity(more[most], 's')} more."
