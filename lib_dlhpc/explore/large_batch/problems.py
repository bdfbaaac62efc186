"""Problems of module 06, large batches and LARS."""

from math import log2

from lib_dlhpc.explore.large_batch.rules import lars_step, longer_step, mean, times_base
from lib_dlhpc.explore.large_batch.time import steps_to_accuracy
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.studies.large_batch_results import paired, stored
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

draw: Cases = globals().get("draw", PAGE)

WEIGHTS, GRADIENT = draw.any([15, 12, 18, 22]), draw.any([0.6, 0.4, 0.8, 1.5])
RATE, TRUST = draw.any([20, 8, 10, 16]), 0.001
CRITICAL = draw.any([8192.0, 2048.0, 4096.0, 16384.0])
BEFORE, AFTER = draw.any([(4, 8), (1, 2), (2, 4)])  # of the critical batch
LARGER, STEEPER = (
    draw.any([1.5, 1.2, 2]),
    draw.any([0.1, 0.2]),
)  # of the weights and the gradient of the first step
LOW = draw.any([0.25, 0.125, 0.5])  # of the critical batch
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
        f"A layer has |w| = {WEIGHTS} and |g| = {GRADIENT}. LARS uses learning rate {RATE} and trust coefficient"
        f" {TRUST}, without weight decay, and momentum is still zero. How large is the first step, |Δw|?",
        lars_step(WEIGHTS, GRADIENT, RATE),
        Step("Trust ratio: trust coefficient times |w| / |g|", TRUST * WEIGHTS / GRADIENT),
        Step(
            "Local rate: the trust ratio times the learning rate", RATE * TRUST * WEIGHTS / GRADIENT
        ),
        Step("|Δw|: the local rate times |g|, which cancels", RATE * TRUST * WEIGHTS),
    ),
    Problem(
        "A later step of LARS",
        f"Later, |w| of this layer is {WEIGHTS * LARGER:g} and |g| only {GRADIENT * STEEPER:.3g}; learning rate and"
        " trust coefficient are as before, and momentum is zero. How large is the step?",
        lars_step(WEIGHTS * LARGER, GRADIENT * STEEPER, RATE),
        Step(
            "Trust ratio: trust coefficient times |w| / |g|",
            TRUST * WEIGHTS * LARGER / (GRADIENT * STEEPER),
        ),
        Step(
            "Local rate: the trust ratio times the learning rate",
            RATE * TRUST * WEIGHTS * LARGER / (GRADIENT * STEEPER),
        ),
        Step("|Δw|: the local rate times |g|, which cancels", RATE * TRUST * WEIGHTS * LARGER),
        kind=FADED,
    ),
    Problem(
        "A sum for a mean",
        f"{RANKS} ranks sum their gradients of the layer of problem 1 and forget to divide by {RANKS}. SGD has a"
        f" learning rate of {STEP}, LARS that of problem 1. By how much does |Δw| of a first step grow with SGD, and by"
        " how much with LARS? Give the sum of the two.",
        (longer_step("sgd", RANKS) - 1) * STEP * GRADIENT
        + (longer_step("lars", RANKS) - 1) * lars_step(WEIGHTS, GRADIENT, RATE),
        Step("A correct step of SGD: rate times |g|", STEP * GRADIENT),
        Step("A step with the sum of the gradients, less that", (RANKS - 1) * STEP * GRADIENT),
        Step(
            "LARS adds nothing, since the norm of the gradient cancels",
            (RANKS - 1) * STEP * GRADIENT,
        ),
    ),
    Problem(
        "Beyond the critical batch",
        f"The critical batch is {CRITICAL:,.0f}. You double the batch from {CRITICAL * BEFORE:,.0f} samples. By how"
        " many percent does the number of steps fall?",
        100
        * (
            1
            - float(
                steps_to_accuracy(AFTER * CRITICAL, CRITICAL)
                / steps_to_accuracy(BEFORE * CRITICAL, CRITICAL)
            )
        ),
        Step("Steps before, relative to the minimum: 1 + B_c / B", over_least(BEFORE * CRITICAL)),
        Step("Steps after, in the same way", over_least(AFTER * CRITICAL)),
        Step(
            "Reduction: 1 less after over before",
            100 * (1 - over_least(AFTER * CRITICAL) / over_least(BEFORE * CRITICAL)),
            "%",
        ),
        kind=WORKED,
    ),
    Problem(
        "Below the critical batch",
        f"Instead, you double the batch from {CRITICAL * LOW:,.0f} samples. By how many percent does the number of"
        " steps fall?",
        100
        * (
            1
            - float(
                steps_to_accuracy(2 * LOW * CRITICAL, CRITICAL)
                / steps_to_accuracy(LOW * CRITICAL, CRITICAL)
            )
        ),
        Step("Steps before, relative to the minimum: 1 + B_c / B", over_least(LOW * CRITICAL)),
        Step("Steps after, in the same way", over_least(2 * LOW * CRITICAL)),
        Step(
            "Reduction: 1 less after over before",
            100 * (1 - over_least(2 * LOW * CRITICAL) / over_least(LOW * CRITICAL)),
            "%",
        ),
        kind=FADED,
    ),
    Problem(
        "Find the mistake: as many GPUs as samples",
        f"A run trains with {OWN:,.0f} samples per step; its critical batch is {CRITICAL:,.0f}. A plan uses {TIMES}"
        f" times the samples per step on {TIMES} times the GPUs, each batch with its best learning rate. A step takes"
        f" as long as before, so the plan promises a run {TIMES} times as fast. How many times as fast is it really?",
        gained,
        Step("Steps before, relative to the minimum: 1 + B_c / B", over_least(OWN)),
        Step("Steps after, in the same way", over_least(TIMES * OWN)),
        Step("Before over after", over_least(OWN) / over_least(TIMES * OWN)),
        traps=[
            Trap(
                TIMES,
                "That holds far below the critical batch. Here the number of steps does not fall in proportion.",
            ),
            Trap(
                over_least(TIMES * OWN) / over_least(OWN),
                "That is the new time over the old one. The speedup is the old time over the new one.",
            ),
        ],
    ),
    Problem(
        "What the plan costs",
        "How many times as many GPU-hours as the old run does the plan of problem 6 take?",
        TIMES / gained,
        Step("Duration of the plan's run over that of the old run", 1 / gained),
        Step("Times the ratio of GPUs", TIMES / gained),
        traps=[
            Trap(
                1,
                "That would need a speedup in proportion to the number of GPUs, which the run does not reach.",
            ),
            Trap(TIMES, "The run also gets shorter: GPU-hours are GPUs times hours."),
        ],
    ),
    Problem(
        "What the rate repairs",
        f"At batch {LARGE:,} linear scaling reaches a test accuracy of {linear:.2f}%, SGD with a tuned rate"
        f" {tuned:.2f}%, and LARS {lars:.2f}%. What share of the gain of LARS over linear scaling does tuning the rate"
        " of SGD achieve?",
        100
        * (1 - 100 * paired(stored(), ("lars", LARGE), ("tuned", LARGE)).mean / (lars - linear)),
        Step("Gain of LARS over linear scaling", lars - linear, "points"),
        Step("Gain of tuned SGD over linear scaling", tuned - linear, "points"),
        Step("The second over the first", 100 * (tuned - linear) / (lars - linear), "%"),
    ),
    Problem(
        "Read a published table",
        f"Goyal et al. 2017 (figure 3) report a top-1 error of {few}% for a batch of {SMALL:,}, {flat}% for 8,192 and"
        f" {steep}% for 65,536. On average, how many times as many points of error does a doubling of the batch add"
        " above 8,192 as below it?",
        beyond / below,
        Step(f"Doublings from {SMALL:,} to 8,192", log2(8192 / SMALL)),
        Step("Points of error that each of them adds", below, "points"),
        Step("Points of error that each of the three doublings above 8,192 adds", beyond, "points"),
        Step("Above over below", beyond / below),
        traps=[
            Trap(
                (steep - flat) / (flat - few),
                "That compares all points above 8,192 with all below: divide each by its number of doublings.",
            )
        ],
    ),
]
