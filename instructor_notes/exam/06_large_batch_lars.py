"""Exam questions of module 06, large batches and LARS."""

from lib_dlhpc.explore.large_batch.rules import (
    base,
    lars_step,
    longer_step,
    mean,
    spread,
    times_base,
)
from lib_dlhpc.explore.large_batch.time import steps_to_accuracy
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question

LARGE, BEYOND = times_base(32), 4000
tuned, lars = (100 * mean(rule, LARGE).mean for rule in ("tuned", "lars"))
sgd_beyond, lars_beyond = (mean(rule, BEYOND) for rule in ("tuned", "lars"))


def linear_scaling(draw: Draw) -> Question:
    """The batch at which a scaled rate is no longer stable."""
    batch, rate = draw.between(16, 128, 8), draw.between(0.01, 0.06, 0.01)
    momentum, curvature = draw.between(0.5, 0.9, 0.1), draw.between(1.5, 4.0, 0.5)

    def last(bound: float) -> str:
        return f"{batch * bound / (rate * curvature):,.0f}"

    return Question(
        "linear scaling",
        f"Batch {batch} trains at a rate of {rate:g} with momentum {momentum:g}; the largest curvature of the loss is"
        f" {curvature:g}. The rate grows in proportion to the batch, with a warm-up. Up to about which batch is a step"
        " stable?",
        last(2 * (1 + momentum)),
        {
            "Any batch": "Linear scaling of the rate always works.",
            last(2): "Momentum does not change the stable rate.",
            last(
                2 * (1 - momentum)
            ): "Momentum multiplies each step, so the rate must be divided by the same factor.",
        },
        "A step of SGD with momentum m is stable while rate times curvature is below 2 (1 + m); beyond that, the run"
        " diverges, however long its warm-up.",
        [
            Step("Rate times curvature, at this batch", rate * curvature),
            Step("Bound, 2 (1 + m)", 2 * (1 + momentum)),
            Step(
                "Batch times bound, over rate times curvature",
                round(batch * 2 * (1 + momentum) / (rate * curvature)),
            ),
        ],
    )


def what_closes_the_gap(draw: Draw) -> Question:
    """How much a tuned rate is worth."""
    scaled, small = draw.between(62.0, 88.0, 0.4), draw.between(93.0, 97.0, 0.2)
    again = round(scaled + draw.between(0.5, 0.85, 0.05) * (small - scaled), 1)
    own = round(again + draw.between(0.3, 0.8, 0.1) * (small - again), 1)
    gap = small - scaled
    closed = 100 * (again - scaled) / gap
    return Question(
        "what closes the gap",
        f"At a large batch, linear scaling reaches {scaled:.1f}%, plain SGD with its rate tuned again {again:.1f}%,"
        f" LARS {own:.1f}%; the small batch had {small:.1f}%. How much of the gap between linear scaling and the small"
        " batch does the tuned rate alone close?",
        f"{closed:.1f}%",
        {
            f"{100 * (own - scaled) / gap:.1f}%": "LARS is what saved it.",
            f"{50 * (own - scaled) / gap:.1f}%": "Half of what LARS gains comes from the rate.",
            f"{100 - closed:.1f}%": "The part of the gap that remains is what the rate was worth.",
        },
        "Most of the gap is due to the learning rate; LARS has its limits, too.",
        [
            Step("The gap, in points", gap),
            Step("What the tuned rate gains, over that", closed, "%"),
        ],
    )


def steps(draw: Draw) -> Question:
    """Steps over a critical batch."""
    critical, small = draw.between(1000, 6000, 250), draw.between(200, 800, 50)
    large = draw.between(8000, 40000, 800)
    few, many = (float(steps_to_accuracy(each, critical)) for each in (small, large))
    return Question(
        "steps",
        f"A task has a critical batch of {critical:,}. With its best rate, batch {small} needs {few:,.0f} steps to the"
        f" target. How many steps does batch {large:,} need, with its own best rate?",
        f"{many:,.0f}",
        {
            f"{few * small / large:,.0f}": "A larger batch gives a better gradient, so steps fall in proportion.",
            f"{few:,.0f}": "The number of steps does not depend on the batch.",
            f"{few * (small / large) ** 0.5:,.0f}": "Steps fall with the root of the batch without end.",
        },
        "The number of steps is the minimum times (1 + critical / batch): beyond the critical batch, even an infinite"
        " batch would not halve it.",
        [
            Step("1 + critical / batch, for the small batch", 1 + critical / small),
            Step("And for the large one", 1 + critical / large),
            Step("Steps times the second over the first", round(many)),
        ],
    )


def sum_for_mean(draw: Draw) -> Question:
    """A bug that replicas share."""
    ranks, rate = draw.between(5, 18, 1), draw.between(0.02, 0.4, 0.02)
    gradient = draw.between(0.3, 2.5, 0.1)
    one = rate * gradient
    return Question(
        "sum for mean",
        f"{ranks} ranks add their gradients where they should take the mean, which has a length of {gradient}. All"
        f" replicas stay identical. How long is a step of SGD at a rate of {rate}?",
        f"{longer_step('sgd', ranks) * one:.3g}",
        {
            f"{one:.3g}": "If the replicas agree, the gradients are right.",
            f"{ranks**0.5 * one:.3g}": "Gradients of different samples add like noise.",
            f"{(ranks - 1) * one:.3g}": "Each rank adds the gradients of the others.",
        },
        "The update is the rate times the sum. With LARS, the length of the gradient cancels, and the bug is hidden.",
        [Step("Length of the sum", ranks * gradient), Step("Times the rate", ranks * one)],
    )


def first_step(draw: Draw) -> Question:
    """The trust ratio."""
    weights, gradient = draw.between(5, 18, 1), draw.between(0.6, 2.4, 0.1)
    rate, trust = draw.between(4, 16, 1), draw.any([0.001, 0.002, 0.003])
    return Question(
        "first step",
        f"A layer has |w| = {weights} and |g| = {gradient:g}. LARS runs with rate {rate}, trust {trust:g}, no decay,"
        " and no momentum yet. How long is the step?",
        f"{lars_step(weights, gradient, rate, trust):.3g}",
        {
            f"{rate * trust * weights / gradient:.3g}": "The step is the local rate times the rate.",
            f"{rate * trust * gradient:.3g}": "Trust scales the gradient.",
            f"{rate * trust * weights * gradient:.3g}": "The local rate is trust times the weights.",
        },
        "The length of the gradient cancels: the step is rate times trust times |w|.",
        [
            Step("Local rate: trust |w| / |g|", trust * weights / gradient),
            Step("Rate times local rate times |g|", rate * trust * weights),
        ],
    )


OPEN = Open(
    "A vendor shows that its optimizer reaches 0.4 points more than SGD at batch 32,768, with one run of each, the"
    " best rate of a list for its own optimizer, linear scaling for SGD, and accuracy on the test samples. List what"
    " is wrong with the comparison, the most serious first, and design one that would convince you.",
    "SGD's rate was not tuned; the vendor's was chosen on the test samples; one seed for each shows nothing about"
    " half a point. Tune both over lists of equal length on a validation split, run the same several seeds for both,"
    " and report the difference with an interval, at more than one batch.",
    {
        "finds that only one rate was tuned, and on the test samples": 2,
        "finds that one seed cannot show the difference": 1,
        "designs a comparison: equal tuning on a validation split, paired seeds, an interval": 3,
    },
)

QUESTIONS = [
    linear_scaling,
    Question(
        "warm-up",
        "A run diverges at 32 times the batch and rate. You lengthen its warm-up from 5 to 16 epochs. What happens?",
        "It gets further at the start, and fails at the peak",
        {
            "It reaches what the small batch reached": "A long enough warm-up repairs it.",
            "Nothing changes, not even the start": "Warm-up has no effect.",
            "It converges more slowly to the same accuracy": "Too high a rate costs time, not accuracy.",
        },
        "A warm-up helps while the weights change fast; the run still reaches the peak rate afterwards.",
    ),
    what_closes_the_gap,
    Question(
        "beyond",
        f"A network recognizes digits. At batch {LARGE:,}, LARS is {lars - tuned:.0f} points ahead of SGD with a tuned"
        f" rate. At batch {BEYOND:,}, in a run of {sgd_beyond.steps} steps, SGD reaches {spread(sgd_beyond)} over ten"
        f" seeds, LARS {spread(lars_beyond)}, and the small batch {base().mean:.1%}. What follows?",
        "LARS has a largest batch, too, and this one is beyond it",
        {
            "LARS has a bug, since it was ahead at the smaller batch": "LARS works at any batch.",
            "SGD has no largest batch if its rate is tuned": "A tuned rate works at any batch.",
            "Neither has learned, so it is a draw at this batch": "Beyond a batch no rule learns anything.",
        },
        "So few steps are left that neither rule gets far; SGD is the better of two bad choices.",
    ),
    steps,
    Question(
        "one run",
        "Rule A reaches 95.1% with one seed, rule B 94.6% with another. What follows?",
        "Nothing yet: seeds differ by about a percent",
        {
            "A is better, by half a point": "The best of a few runs is the result.",
            "A is better, if its learning rate was higher": "The rule that tolerates a higher rate is the better one.",
            "They are equal": "A difference that has not been shown is zero.",
        },
        "Compare both rules over the same seeds, and give an interval for the difference.",
    ),
    Question(
        "test samples",
        "Two rules are compared, and the rates of both were chosen on the test samples. Is the comparison fair?",
        "No: both are too good, one more than the other",
        {
            "Yes, both had the same chance": "Choosing the rate on the test samples does no harm.",
            "Yes, if the rates were chosen from the same list": "The same list gives both the same bias.",
            "No, but only the better rule gained": "A bias helps only the winner.",
        },
        "The best of many noisy values is too high, and most so for the rule that varies most from rate to rate. A"
        " validation split keeps the test samples out of the choice.",
    ),
    sum_for_mean,
    Question(
        "other accuracy",
        "In float32, one rank and four ranks end a percent apart on the same global batch. What do you do first?",
        "Run both in float64, and compare the curves",
        {
            "Look for a bug in the exchange first": "Four ranks reached a different accuracy, so something is wrong.",
            "Lower the learning rate until they agree": "Two results that agree are right.",
            "Nothing, a percent is always noise": "Every difference is rounding.",
        },
        "If the curves coincide in float64, the cause was the order of summation, which changes the last digit; a"
        " high rate amplifies such differences.",
    ),
    first_step,
]
