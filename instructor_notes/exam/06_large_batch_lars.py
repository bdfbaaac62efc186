"""Exam questions of module 06, large batches and LARS."""

from lib_dlhpc.explore.large_batch.rules import base, lars_step, longer_step, mean, times_base
from lib_dlhpc.explore.large_batch.time import steps_to_accuracy
from lib_dlhpc.teaching.questions import Draw, Question

LARGE, BEYOND = times_base(32), 4000
tuned, lars = (100 * mean(rule, LARGE).mean for rule in ("tuned", "lars"))
over = 100 * (mean("tuned", BEYOND).mean - mean("lars", BEYOND).mean)


def linear_scaling(draw: Draw) -> Question:
    """The batch at which a scaled rate is no longer stable."""
    batch, rate = draw.of([(48, 0.02), (96, 0.05), (24, 0.01)])
    momentum, curvature = draw.of([(0.9, 2.5), (0.8, 3.0), (0.9, 4.0), (0.95, 1.5)])

    def last(bound: float) -> str:
        return f"{batch * bound / (rate * curvature):,.0f}"

    return Question(
        "linear scaling",
        f"Batch {batch} trains at a rate of {rate:g} with momentum {momentum:g}; the largest curvature of the loss is"
        f" {curvature:g}. The rate grows in proportion to the batch, warmed up. Up to about which batch is a step"
        " stable?",
        last(2 * (1 + momentum)),
        {
            "Any batch": "Linear scaling of the rate always works.",
            last(2): "Momentum does not change what is stable.",
            last(
                2 * (1 - momentum)
            ): "Momentum multiplies each step, so the rate must be divided by as much.",
        },
        "A step of SGD with momentum m is stable while rate times curvature is below 2 (1 + m); beyond, the run"
        " diverges, however long its warm-up.",
    )


def what_closes_the_gap(draw: Draw) -> Question:
    """How much a tuned rate is worth."""
    batch = draw.of([1024, 2048, 4000])
    scaled, again, own = (100 * mean(rule, batch).mean for rule in ("linear", "tuned", "lars"))
    small = 100 * base().mean
    closed = 100 * (again - scaled) / (small - scaled)
    return Question(
        "what closes the gap",
        f"A perceptron on digits. At batch {batch:,} linear scaling reaches {scaled:.1f} %, plain SGD with its rate"
        f" tuned again {again:.1f} %, LARS {own:.1f} %; the small batch had {small:.1f} %. How much of the gap between"
        " linear scaling and the small batch does the tuned rate alone close?",
        f"{closed:.1f} %",
        {
            f"{0:.1f} %": "LARS is what saved it.",
            f"{closed / 2:.1f} %": "A tuned rate and LARS each close half.",
            f"{100:.1f} %": "A good rate is all that it takes.",
        },
        "Most of it is the learning rate; LARS has an end, too.",
    )


def steps(draw: Draw) -> Question:
    """Steps over a critical batch."""
    critical, small = draw.of([(3000, 500), (6000, 750), (1500, 400)])
    large = draw.of([9600, 25600, 12800, 38400])
    few, many = (float(steps_to_accuracy(each, critical)) for each in (small, large))
    return Question(
        "steps",
        f"A task has a critical batch of {critical:,}. Batch {small} needs {few:,.0f} steps to the target, with the"
        f" best rate. How many does batch {large:,} need, with its best rate?",
        f"{many:,.0f}",
        {
            f"{few * small / large:,.0f}": "A larger batch gives a better gradient, so steps fall in proportion.",
            f"{few:,.0f}": "The number of steps does not depend on the batch.",
            f"{few * (small / large) ** 0.5:,.0f}": "Steps fall with the root of the batch without end.",
        },
        "Steps are fewest times 1 + critical / batch: beyond the critical batch they hardly fall.",
    )


def sum_for_mean(draw: Draw) -> Question:
    """A bug that replicas share."""
    ranks = draw.of([6, 11, 13, 14, 18])
    return Question(
        "sum for mean",
        f"{ranks} ranks add their gradients where they should take the mean. All replicas stay equal. How many times as"
        " long is a step of SGD?",
        f"{longer_step('sgd', ranks):.1f}",
        {
            f"{longer_step('lars', ranks):.1f}": "If the replicas agree, the gradients are right.",
            f"{ranks**0.5:.1f}": "Gradients of different samples add like noise.",
            f"{ranks**2:.1f}": "Rate and gradient both grow.",
        },
        "The update is the rate times the sum. Under LARS the length cancels, and the bug is hidden.",
    )


def first_step(draw: Draw) -> Question:
    """The trust ratio."""
    weights, gradient = draw.of([(14, 0.7), (23, 0.4), (17, 1.6)])
    rate, trust = draw.of([(8, 0.001), (12, 0.002), (5, 0.003), (15, 0.001)])
    return Question(
        "first step",
        f"A layer with |w| = {weights} and |g| = {gradient:g}. LARS with rate {rate}, trust {trust:g}, no decay, no"
        " momentum yet. How long is the step?",
        f"{lars_step(weights, gradient, rate, trust):.3g}",
        {
            f"{rate * gradient:.3g}": "LARS is SGD with a warm-up.",
            f"{rate * trust * gradient:.3g}": "Trust scales the gradient.",
            f"{rate * trust * weights * gradient:.3g}": "The local rate is trust times the weights.",
        },
        "The length of the gradient cancels: rate times trust times |w|.",
    )


QUESTIONS = [
    linear_scaling,
    Question(
        "warm-up",
        "The run diverges at 32 times the batch and rate. You lengthen the warm-up from 5 to 16 epochs. What"
        " happens?",
        "It gets further at the start, and fails at the same peak rate",
        {
            "It reaches what the small batch reached": "A long enough warm-up repairs it.",
            "Nothing changes, not even the start": "Warm-up has no effect.",
            "It converges more slowly to the same accuracy": "Too high a rate costs time, not accuracy.",
        },
        "Warm-up helps while the weights change fast; the peak rate comes all the same.",
    ),
    what_closes_the_gap,
    Question(
        "beyond",
        f"At batch {BEYOND:,} SGD with a tuned rate and LARS are compared over the same seeds. Which is ahead?",
        f"SGD, by {over:.0f} points",
        {
            f"LARS, by {lars - tuned:.0f} points": "LARS works at any batch.",
            "Neither, both equal the small batch": "A tuned rate works at any batch.",
            "Neither, both are at chance": "Beyond a batch no rule learns anything.",
        },
        "LARS has an end too; here SGD is the better of two bad ones.",
    ),
    steps,
    Question(
        "one run",
        "Rule A reaches 95.1 % with one seed, rule B 94.6 % with another. What follows?",
        "Nothing yet: runs differ by about a percent from seed to seed",
        {
            "A is better, by half a point": "The best of a few runs is the result.",
            "A is better, if its rate was higher": "A rule that bears a higher rate is the better rule.",
            "They are equal": "A difference that is not shown is a difference of zero.",
        },
        "Compare over the same seeds, and give the interval of the difference.",
    ),
    Question(
        "test samples",
        "Both rules had their rate chosen on the test samples. Is the comparison fair?",
        "No: both are too good, and more so the rule that varies more from rate to rate",
        {
            "Yes, both had the same chance": "Choosing the rate on the test samples does no harm.",
            "Yes, if the rates were chosen from the same list": "The same list makes the same bias.",
            "No, but only the better rule gained": "A bias helps the winner alone.",
        },
        "The best of many noisy values is too high; a validation split keeps the test samples out of the choice.",
    ),
    sum_for_mean,
    Question(
        "other accuracy",
        "In float32, one rank and four ranks end a percent apart on the same global batch. What comes first?",
        "Run both in float64: if the curves coincide there, it was the order of summation",
        {
            "Look for the bug in the exchange": "Four ranks reached a different accuracy, so something is wrong.",
            "Lower the learning rate until they agree": "What agrees is right.",
            "Nothing, a percent is always noise": "Every difference is rounding.",
        },
        "Another order of summation changes the last digit, and a high rate amplifies it.",
    ),
    first_step,
]
