"""What the drawings of the lesson on one step share: the passes of a step, its classes of operators."""

from lib_dlhpc.results import palette

BETWEEN = "between layers"
LAUNCHES = "launches"
OPERATORS = {  # classes of costs/operators.py, and what all kernels take to start
    "GEMM": palette.BACKWARD,
    "attention": palette.FORWARD,
    "normalization": palette.GRADIENTS,
    "elementwise": palette.INPUT,
    "optimizer": palette.UPDATE,
    LAUNCHES: palette.IDLE,  # the device computes nothing
}
PASSES = {name: palette.TERMS[name] for name in ("forward", "backward", "update")} | {
    BETWEEN: palette.IDLE
}
