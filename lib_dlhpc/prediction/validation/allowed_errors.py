"""By how much the prediction of a published row may be off, fixed before it is predicted."""

from collections.abc import Mapping
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.validation.published import published, rounding

# What a prediction may be off by, by class, and where that comes from. Arithmetic: see allowed().
OTHERS = (
    0.15,
    "class: about the mean error of the best published model over all strategies, 13.3% (Kahira 2021)",
)
ALLOWED = {
    "collective": OTHERS,
    "3-D": (0.10, "class: fixed when the rows were collected"),
    "pipeline": (
        0.10,
        "class: the bubble of GPipe holds within 10% (fixed when the rows were collected)",
    ),
    "recompute": (0.03, "class: closed forms of FLOP hold within 3%"),
}
EXACT = 0.03  # at most, for arithmetic


def allowed(table: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[float, str]:
    """Return by how much a row may be off, and where that limit comes from; raises SpecError where it does not say."""
    own = entry if "tolerance" in entry else table
    if "tolerance" in own:
        if not own.get("tolerance_from"):
            raise SpecError(
                f"{entry['id']}: tolerance = {own['tolerance']} without tolerance_from."
            )
        return own["tolerance"], own["tolerance_from"]
    measured, group = published(entry["id"]), entry.get("class", table.get("class", ""))
    if measured["unit"] == "bool":
        return 0.0, "a yes-or-no answer"
    if "definition" in entry and group not in ALLOWED:
        printed = f"one unit in the last digit of {measured['value']}, at most {EXACT:.0%}"
        return min(rounding(measured["value"]), EXACT) + 1e-9, printed
    return ALLOWED.get(group, OTHERS)
