"""Problems of module 06, large batches and LARS."""

from math import log2

from lib_dlhpc.explore.large_batch.rules import lars_step, longer_step, mean, times_base
from lib_dlhpc.explore.large_batch.time import steps_to_accuracy
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.studies.large_batch_results import paired, stored
from lib_dlhpc.teaching.problems import PAGE, Cases, Problem, Step, Trap

draw: Cases = globals().get("draw", PAGE)

WEIGHTS, GRADIENT = draw.any([15, 12, 18, 22]), draw.any([0.6, 0.4, 0.8, 1.5])
RATE, TRUST = draw.any([20, 8, 10, 16]), 0.001
CRITICAL = draw.any([8192.0, 2048.0, 4096.0, 16384.0])
BEFORE, AFTER = draw.any([(4, 8), (1, 2), (2, 4)])  # of the critical batch
RANKS, STEP = draw.any([8, 4, 16]), draw.any([0.5, 0.2, 0.1])
LARGE = times_base(32)
SMALL = draw.any([128, 4096])  # of figure 3 of Goyal et al. 2017
few, flat, steep = (
    float(results()[f"goyal17-err-{batch}"]["value"]) for batch in (SMALL, 8192, 65_536)
)
below, beyond = (flat - few) / log2(8192 / SMALL), (steep - flat) / log2(65_536 / 8192)
OWN, TIMES = draw.any([0.5, 1, 2]) * CRITICAL, draw.any([8, 4, 16])
gained = float(steps_to_accuracy(OWN, CRITICAL) / steps_to_accuracy(TIMES * OWN, CRITICAL))
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
    Problem(
        "Find the mistake: as many GPUs as samples",
        f"A run trains with {OWN:,.0f} samples per step; its critical batch is {CRITICAL:,.0f}. A plan takes {TIMES}"
        f" times the samples on {TIMES} times the GPUs, finds that a step takes as long as before, and promises a run"
        f" {TIMES} times as fast, at the best rate of each batch. How many times as fast is it?",
        gained,
        Step("Steps over the fewest, before: 1 + B_c / B", over_least(OWN)),
        Step("After", over_least(TIMES * OWN)),
        Step("Before over after", over_least(OWN) / over_least(TIMES * OWN)),
        traps=[
            Trap(
                TIMES,
                "That holds far below the critical batch. Here the steps do not fall in proportion.",
            ),
            Trap(
                over_least(TIMES * OWN) / over_least(OWN), "That is the new time over the old one."
            ),
        ],
    ),
    Problem(
        "What the plan costs",
        "How many times the GPU-hours of the old run does the plan of problem 5 take?",
        TIMES / gained,
        Step("Time of the plan, over that of the old run", 1 / gained),
        Step("Times its GPUs", TIMES / gained),
        traps=[
            Trap(1, "Only if the run were as many times as fast as it has GPUs: it is not."),
            Trap(TIMES, "The run also gets shorter: GPU-hours are GPUs times hours."),
        ],
    ),
    Problem(
        "Read a published table",
        f"Goyal et al. 2017 (figure 3) report a top-1 error of {few}% for a batch of {SMALL:,}, {flat}% for 8,192 and"
        f" {steep}% for 65,536. How many times as many points does a doubling of the batch cost on average above 8,192"
        " as below?",
        beyond / below,
        Step("Doublings below 8,192", log2(8192 / SMALL)),
        Step("Points of one of them", below, "points"),
        Step("Points of one of the three above", beyond, "points"),
        Step("Above over below", beyond / below),
        traps=[
            Trap(
                (steep - flat) / (flat - few),
                "That compares all points above with all below: divide each by its number of doublings.",
            )
        ],
    ),
]
