"""Exam questions of module 06, large batches and LARS."""

from lib_dlhpc.explore.large_batch.rules import base, lars_step, longer_step, mean, times_base
from lib_dlhpc.explore.large_batch.time import Cost, saved, steps_needed
from lib_dlhpc.teaching.questions import Question

BATCH, LARGE, BEYOND = times_base(1), times_base(32), 4000
linear, tuned, lars, small = (
    100 * m.mean for m in (mean("linear", LARGE), mean("tuned", LARGE), mean("lars", LARGE), base())
)
closed = 100 * (tuned - linear) / (small - linear)
few, many = steps_needed(64), steps_needed(BEYOND)
over = 100 * (mean("tuned", BEYOND).mean - mean("lars", BEYOND).mean)
WEIGHTS, GRADIENT, RATE = 12, 0.8, 10
past = saved(Cost(critical=4096, gpus=512))
within = saved(Cost(critical=65536, gpus=64))

QUESTIONS = [
    Question(
        "linear scaling",
        f"A perceptron on digits: batch {BATCH} reaches {small:.0f} %. With {LARGE:,} samples and"
        f" {LARGE // BATCH} times the learning rate,"
        " warmed up, what does it reach?",
        f"{linear:.0f} %",
        {
            f"{small:.0f} %": "Linear scaling of the rate always works.",
            f"{tuned:.0f} %": "Linear scaling costs a few points, no more.",
            f"{small / 2:.0f} %": "Half of what was learned is lost.",
        },
        "It learns nothing: one of ten classes is right by chance. Small steps no longer have nearly the same"
        " gradient.",
    ),
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
    Question(
        "what closes the gap",
        f"At batch {LARGE:,} linear scaling reaches {linear:.0f} %, LARS {lars:.0f} %; the small batch had"
        f" {small:.0f} %. How much of the gap"
        " between linear scaling and the small batch does plain SGD close if only its rate is tuned again?",
        f"{closed:.0f} %",
        {
            f"{0:.0f} %": "LARS is what saved it.",
            f"{closed / 2:.0f} %": "A tuned rate and LARS each close half.",
            f"{100:.0f} %": "A good rate is all that it takes.",
        },
        "Most of it is the learning rate. LARS closes the rest, and hardly depends on rate or seed.",
    ),
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
    Question(
        "steps",
        f"Batch 64 needs {few:.0f} steps to the target, with the best rate. How many does batch {BEYOND:,} need?",
        f"{many:.0f}",
        {
            f"{few * 64 / BEYOND:.1f}": "A larger batch gives a better gradient, so steps fall in proportion.",
            f"{few:.0f}": "The number of steps does not depend on the batch.",
            f"{few * (64 / BEYOND) ** 0.5:.0f}": "Steps fall with the root of the batch without end.",
        },
        "Beyond the critical batch steps hardly fall.",
    ),
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
    Question(
        "sum for mean",
        "Four ranks add their gradients where they should take the mean. All replicas stay equal. How many"
        " times as long is a step of SGD?",
        f"{longer_step('sgd', 4):.0f}",
        {
            f"{longer_step('lars', 4):.0f}": "If the replicas agree, the gradients are right.",
            f"{4**0.5:.0f}": "Gradients of different samples add like noise.",
            f"{4**2:.0f}": "Rate and gradient both grow.",
        },
        "The update is the rate times the sum. Under LARS the length cancels, and the bug is hidden.",
    ),
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
    Question(
        "first step",
        f"A layer with |w| = {WEIGHTS} and |g| = {GRADIENT}. LARS with rate {RATE}, trust 0.001, no decay, no"
        " momentum yet. How long is the step?",
        f"{lars_step(WEIGHTS, GRADIENT, RATE):.3g}",
        {
            f"{RATE * GRADIENT:.3g}": "LARS is SGD with a warm-up.",
            f"{RATE * 0.001 * GRADIENT:.3g}": "Trust scales the gradient.",
            f"{RATE * 0.001 * WEIGHTS * GRADIENT:.3g}": "The local rate is trust times the weights.",
        },
        "The length of the gradient cancels: rate times trust times |w|.",
    ),
]
