"""What a step costs by cause, in the names of a lab's hints."""

from collections.abc import Mapping

from lib_dlhpc.prediction import Breakdown


def step_costs(found: Breakdown, exposed: Mapping[str, str]) -> dict[str, float]:
    """Return the seconds of a step by cause. exposed: kinds of messages, and what a lab calls those not hidden."""
    again = float(found.recomputation)
    return {
        "computing": float(found.forward + found.backward) - again,
        "recomputation": again,
        "pipeline bubble": float(found.pipeline_bubble),
        "updates": float(found.update),
    } | {name: float(found.exposed.get(kind, 0.0)) for kind, name in exposed.items()}
