"""What the drawings of the lesson on one step share: the passes of a step."""

from lib_dlhpc.results import palette

BETWEEN = "between layers"
PASSES = {name: palette.TERMS[name] for name in ("forward", "backward", "update")} | {
    BETWEEN: "#f5f5f5"
}
