"""Problems of module 06, large batches and LARS."""

from lib_dlhpc.explore.large_batch.rules import lars_step, longer_step, mean, times_base
from lib_dlhpc.explore.large_batch.time import steps_to_accuracy
from lib_dlhpc.studies.large_batch_results import paired, stored
from lib_dlhpc.teaching.problems import PAGE, Cases, Problem, Step

draw: Cases = globals().get("draw", PAGE)

WEIGHTS, GRADIENT = draw.any([15, 12, 18, 22]), draw.any([0.6, 0.4, 0.8, 1.5])
RATE, TRUST = draw.any([20, 8, 10, 16]), 0.001
CRITICAL = draw.any([8192.0, 2048.0, 4096.0, 16384.0])
BEFORE, AFTER = draw.any([(4, 8), (1, 2), (2, 4)])  # of the critical batch
RANKS, STEP = draw.any([8, 4, 16]), draw.any([0.5, 0.2, 0.1])
LARGE = times_base(32)
linear, tuned, lars = (100 * mean(rule, LARGE).mean for rule in ("linear", "tuned", "lars"))


def over_least(batch: float) -> float:
    """Return the steps over the fewest possible."""
    return 1 + CRITICAL / batch


PROBLEMS = [
    Problem(
        "A first step of LARS",
        f"A layer has |w| = {WEIGHTS} and |g| = {GRADIENT}. LARS uses rate {RATE} and trust {TRUST}, with no decay"
        " and no momentum yet. How long is its step?",
        lars_step(WEIGHTS, GRADIENT, RATE),
        Step("Local rate: trust |w| / |g|", TRUST * WEIGHTS / GRADIENT),
        Step("Times the rate", RATE * TRUST * WEIGHTS / GRADIENT),
        Step("Times |g|, which cancels", RATE * TRUST * WEIGHTS),
    ),
    Problem(
        "Beyond the critical batch",
        f"The critical batch is {CRITICAL:,.0f}. You go from {CRITICAL * BEFORE:,.0f} samples per step to twice as"
        " many. By how many percent does the number of steps fall?",
        100
        * (
            1
            - float(
                steps_to_accuracy(AFTER * CRITICAL, CRITICAL)
                / steps_to_accuracy(BEFORE * CRITICAL, CRITICAL)
            )
        ),
        Step("Steps over the fewest, before: 1 + B_c / B", over_least(BEFORE * CRITICAL)),
        Step("After", over_least(AFTER * CRITICAL)),
        Step("Fall", 100 * (1 - over_least(AFTER * CRITICAL) / over_least(BEFORE * CRITICAL)), "%"),
    ),
    Problem(
        "What the rate repairs",
        f"At batch {LARGE:,} linear scaling reaches {linear:.2f}%, SGD with a tuned rate {tuned:.2f}%, LARS"
        f" {lars:.2f}%. What share of"
        " the gain of LARS comes from tuning the rate?",
        100
        * (1 - 100 * paired(stored(), ("lars", LARGE), ("tuned", LARGE)).mean / (lars - linear)),
        Step("LARS over linear scaling", lars - linear, "points"),
        Step("Tuned SGD over linear scaling", tuned - linear, "points"),
        Step("The second over the first", 100 * (tuned - linear) / (lars - linear), "%"),
    ),
    Problem(
        "A sum for a mean",
        f"{RANKS} ranks add the gradients of the layer of problem 1 and forget to divide. SGD has a rate of {STEP},"
        " LARS that of problem 1. By how much does a step get longer with SGD, and by how much with LARS? Give the sum"
        " of both.",
        (longer_step("sgd", RANKS) - 1) * STEP * GRADIENT
        + (longer_step("lars", RANKS) - 1) * lars_step(WEIGHTS, GRADIENT, RATE),
        Step("A step of SGD: rate times |g|", STEP * GRADIENT),
        Step("The step of the sum, less that", (RANKS - 1) * STEP * GRADIENT),
        Step(
            "LARS adds nothing: the length of the gradient cancels", (RANKS - 1) * STEP * GRADIENT
        ),
    ),
]
