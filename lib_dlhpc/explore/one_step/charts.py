"""What the drawings of the lesson on one step share: the passes of a step, and words beside a vertical line."""

from typing import Any

from lib_dlhpc.results import palette

BETWEEN = "between layers"
PASSES = {name: palette.TERMS[name] for name in ("forward", "backward", "update")} | {
    BETWEEN: "#f5f5f5"
}


def beside(late: bool) -> dict[str, Any]:
    """Return where the words of a line stand: to its left if it is late on its axis."""
    return {"side": "right", "shift": -6} if late else {"side": "left", "shift": 6}
