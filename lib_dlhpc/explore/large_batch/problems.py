"""Problems of module 06, large batches and LARS."""

from math import log2

from lib_dlhpc.explore.large_batch.rules import lars_step, longer_step, mean, times_base
from lib_dlhpc.explore.large_batch.time import steps_to_accuracy
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.studies.large_batch_results import paired, stored
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

draw: Cases = globals().get("draw", PAGE)

WEIGHTS, GRADIENT = draw.any([15, 12, 18, 22]), draw.any([0.6, 0.4, 0.8, 1.5])
RATE, TRUST = draw.any([20, 8, 10, 16]), 0.001
CRITICAL = draw.any([8192.0, 2048.0, 4096.0, 16384.0])
BEFORE, AFTER = draw.any([(4, 8), (1, 2), (2, 4)])  # of the critical batch
# of the weights and the gradient of the first step
LARGER, STEEPER = (draw.any([1.5, 1.2, 2]), draw.any([0.1, 0.2]))
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


PROBLEMS = written(
    globals(),
    first_step=Numbers(
        lars_step(WEIGHTS, GRADIENT, RATE),
        trust=TRUST * WEIGHTS / GRADIENT,
        local_rate=RATE * TRUST * WEIGHTS / GRADIENT,
        change=RATE * TRUST * WEIGHTS,
    ),
    later_step=Numbers(
        lars_step(WEIGHTS * LARGER, GRADIENT * STEEPER, RATE),
        weights=WEIGHTS * LARGER,
        gradient=GRADIENT * STEEPER,
        trust=TRUST * WEIGHTS * LARGER / (GRADIENT * STEEPER),
        local_rate=RATE * TRUST * WEIGHTS * LARGER / (GRADIENT * STEEPER),
        change=RATE * TRUST * WEIGHTS * LARGER,
    ),
    sum_for_mean=Numbers(
        (longer_step("sgd", RANKS) - 1) * STEP * GRADIENT
        + (longer_step("lars", RANKS) - 1) * lars_step(WEIGHTS, GRADIENT, RATE),
        correct=STEP * GRADIENT,
        more=(RANKS - 1) * STEP * GRADIENT,
    ),
    beyond_critical=Numbers(
        100
        * (
            1
            - float(
                steps_to_accuracy(AFTER * CRITICAL, CRITICAL)
                / steps_to_accuracy(BEFORE * CRITICAL, CRITICAL)
            )
        ),
        batch=CRITICAL * BEFORE,
        before=over_least(BEFORE * CRITICAL),
        after=over_least(AFTER * CRITICAL),
        falls=100 * (1 - over_least(AFTER * CRITICAL) / over_least(BEFORE * CRITICAL)),
    ),
    below_critical=Numbers(
        100
        * (
            1
            - float(
                steps_to_accuracy(2 * LOW * CRITICAL, CRITICAL)
                / steps_to_accuracy(LOW * CRITICAL, CRITICAL)
            )
        ),
        batch=CRITICAL * LOW,
        before=over_least(LOW * CRITICAL),
        after=over_least(2 * LOW * CRITICAL),
        falls=100 * (1 - over_least(2 * LOW * CRITICAL) / over_least(LOW * CRITICAL)),
    ),
    as_many_gpus=Numbers(
        gained,
        before=over_least(OWN),
        after=over_least(TIMES * OWN),
        speedup=over_least(OWN) / over_least(TIMES * OWN),
        inverse=over_least(TIMES * OWN) / over_least(OWN),
    ),
    plan_cost=Numbers(TIMES / gained, duration=1 / gained, hours=TIMES / gained, as_many=1),
    tuned_rate=Numbers(
        100
        * (1 - 100 * paired(stored(), ("lars", LARGE), ("tuned", LARGE)).mean / (lars - linear)),
        of_lars=lars - linear,
        of_tuned=tuned - linear,
        share=100 * (tuned - linear) / (lars - linear),
    ),
    published=Numbers(
        beyond / below,
        doublings=log2(8192 / SMALL),
        ratio=beyond / below,
        of_all=(steep - flat) / (flat - few),
    ),
)
