"""What module 06 asks, in its order: guesses that uncover experiments, things to try, checks."""

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import Column, Table
from lib_dlhpc.explore.blocks.question import Card
from lib_dlhpc.explore.large_batch import rules, time
from lib_dlhpc.explore.large_batch.live import break_and_repair
from lib_dlhpc.explore.large_batch.real import RANKS, train_here
from lib_dlhpc.explore.large_batch.rules import base, how_far, longer_step, mean, times_base
from lib_dlhpc.explore.large_batch.time import steps_measured, steps_needed, time_to_accuracy
from lib_dlhpc.training.large_batch_results import batches, paired, stored

lesson = Lesson()


def thirty_two_times() -> Card:
    """Ask what linear scaling reaches at 32 times the batch, and train."""
    return lesson.predict(
        f"MNIST, a perceptron: batch {times_base(1)} and rate 0.02 reach {base().mean:.0%} test accuracy. Batch"
        f" {times_base(32):,}, 32 times the rate, with warm-up: what test accuracy?",
        result=100 * mean("linear", times_base(32)).mean,
        unit="%",
        explanation="Chance is 10 %. You can do that too, below, on the smaller digits.",
        then=break_and_repair(),
    )


def retuned() -> Card:
    """Ask what a retuned rate reaches."""
    return lesson.predict(
        f"SGD without any scaling rule: at batch {times_base(32):,} its rate and warm-up are retuned. What"
        " test accuracy does it reach?",
        result=100 * mean("tuned", times_base(32)).mean,
        unit="%",
        explanation="Most of the gap was the wrong rate. LARS must be compared with this, not with the collapse.",
        then=how_far(),
    )


def all_at_once() -> Card:
    """Ask how many steps the largest batch needs."""
    return lesson.predict(
        f"MNIST to 90 %, the best rate for each batch: batch 64 needs {steps_needed(64):.0f} steps. How many does batch"
        " 4,000 need, all samples at once?",
        result=steps_needed(4000),
        unit="steps",
        explanation="An exact gradient is no shortcut: beyond the critical batch the steps hardly fall.",
        then=ipywidgets.VBox([steps_measured(), time_to_accuracy()]),
    )


def hidden_bug() -> Card:
    """Ask what LARS hides, and train on ranks."""
    return lesson.predict(
        f"{RANKS} ranks split the batch. A bug: the allreduce sums their mean gradients without dividing by {RANKS}."
        f" With"
        f" SGD the first step is then {longer_step('sgd', RANKS):.0f} times as long. With LARS?",
        result=lambda: longer_step("lars", RANKS),
        unit="times",
        explanation="The local rate is divided by the norm of the gradient, so the factor cancels: LARS hides the bug."
        " Comparing with one rank reveals it, but do not underestimate rounding: train, and see.",
        then=train_here(),
    )


def linear_scaling() -> Card:
    """Check what linear scaling needs."""
    return lesson.choose(
        "Linear scaling of the rate ...",
        {
            "always works, with a warm-up": "The warm-up helps at the start only. Train 512 once more.",
            "works while k small steps have nearly the same gradient": "Yes: that is what the derivation assumes.",
            "works up to a batch of 8,192": "That was one network on one data set. Here it breaks far earlier.",
        },
        right="works while k small steps have nearly the same gradient",
    )


def same_weights() -> Card:
    """Check what equal weights prove."""
    return lesson.choose(
        "After a step all ranks hold the same weights. What does that tell you about their gradients?",
        {
            "They are right": "All can agree on a wrong one: a mean instead of a sum, a bucket sent too early.",
            "They were exchanged, no more": "Yes: compare with one rank on the same global batch.",
            "They were equal before the exchange": "Each rank had its own samples, and its own gradient.",
        },
        right="They were exchanged, no more",
    )


def twice_the_gpus() -> Card:
    """Check what more GPUs bring beyond the critical batch."""
    return lesson.choose(
        "Your batch is four times the critical one, and you are given twice the GPUs. The run takes ...",
        {
            "half the time": "Steps hardly fall any more: from 1.25 to 1.125 times the minimum.",
            "about a tenth less, for twice the GPU-hours": "Yes, if the step time is unchanged. The same batch, each"
            " sample"
            " split over two GPUs (module 05), shortens the step instead.",
            "longer, the accuracy falls": "A good rate still converges; what is lost is time.",
        },
        right="about a tenth less, for twice the GPU-hours",
    )


def first_step(seed: int | None = None) -> Card:
    """Ask each learner for the first step of a layer under LARS, from numbers of their own."""
    draw = np.random.default_rng(seed)
    weights, gradient = int(draw.integers(8, 20)), round(float(draw.uniform(0.2, 2.0)), 1)
    rate = int(draw.choice([5, 10, 20]))
    return lesson.compute(
        f"A layer with |w| = {weights} and |g| = {gradient:g}; LARS with rate {rate}, trust 0.001, no weight decay,"
        " no momentum yet. How long is the first step, |Δw|?",
        answer=rules.lars_step(weights, gradient, rate),
        hint="The gradient's length cancels: local rate times gradient is trust times |w|, then times the rate.",
    )


def try_repairs() -> Column:
    """List runs to break and to repair."""
    return lesson.steps(
        (
            "Train batch 128 with the defaults, then 512. What happens?",
            "128 learns; 512 ends at chance. 256 depends on the seed.",
        ),
        (
            "Repair 512: a longer warm-up, a quarter of the rate, the unscaled rate, LARS. Which works?",
            "LARS comes within a point or two. The unscaled rate trains, some points below; a quarter of the rate helps"
            " with some seeds; a longer warm-up does not.",
        ),
        (
            "Take another seed. Is your favorite still the best?",
            "Not always. One run is no evidence, hence ten seeds in the next figure.",
        ),
    )


def try_rules() -> Column:
    """List what to find in the stored runs."""

    def better() -> list[int]:
        found = [b for b in rules.BATCHES if b in batches(stored(), "lars")]
        return [b for b in found if paired(stored(), ("lars", b), ("tuned", b)).t > rules.NOTABLE]

    def worse() -> list[int]:
        found = [b for b in rules.BATCHES if b in batches(stored(), "lars")]
        return [b for b in found if mean("lars", b).mean < mean("tuned", b).mean]

    def breaks() -> int:
        found = [b for b in rules.BATCHES if b in batches(stored(), "lars")]
        return next(b for b in found if mean("lars", b).mean < base().mean - rules.CLOSE)

    def lamb() -> str:
        t = paired(stored(), ("lars", 1024), ("lamb", 1024)).t
        sure = "more than" if abs(t) > rules.NOTABLE else "within"
        return f"t = {t:.1f}, {sure} what chance gives with ten seeds."

    return lesson.steps(
        (
            "Find the first batch at which LARS beats retuned SGD by more than chance.",
            lambda: f"{better()[0]:,}.",
        ),
        (
            "Find the first batch at which LARS itself breaks, and one where SGD is better.",
            lambda: (
                f"It breaks at {breaks():,}; SGD is better at {max(worse()):,}, all samples at once."
            ),
        ),
        (
            "Which of the two tolerates a rate that is 50 % too high? Look at the lower chart.",
            "LARS: its line is flat around the best rate, while that of SGD drops.",
        ),
        ("Compare LARS with LAMB at 1,024. Does t let you name a winner?", lamb),
    )


def try_machines() -> Column:
    """List what to find about the time to accuracy."""

    def pays(critical: int) -> int:
        costs = [time.Cost(gpus=p, critical=critical) for p in time.GPUS[:-1]]
        return max(cost.gpus for cost in costs if time.saved(cost) >= time.WORTH)

    def halved() -> str:
        many, few = time.Cost(gpus=2048), time.Cost(gpus=2048, images=16)
        gain = float(time.seconds_to_accuracy(many, 2048) / time.seconds_to_accuracy(few, 2048))
        return (
            f"The batch is smaller, so fewer samples are needed: on 2,048 GPUs 16 images are {gain:.2f} times as fast"
            " as 32, although the share of communication is larger."
        )

    return lesson.steps(
        (
            "Beyond how many GPUs do twice as many save less than a quarter of the time, for a critical batch of"
            " 4,096, and for 65,536?",
            lambda: f"Beyond {pays(4096):,} and {pays(65536):,} GPUs.",
        ),
        ("Take 2,048 GPUs and halve the images of each. Why may that be faster?", halved),
    )


def try_precision() -> Column:
    """List what to look at in the real run."""
    return lesson.steps(
        (
            "Where do the two curves diverge?",
            "After some epochs, if at all: a different order of summation changes the last digit, and a high rate"
            " amplifies that.",
        ),
        (
            "Choose float64 and train again. What do the curves say now?",
            "They coincide: it was rounding, not a bug. Comparing two programs in float32 at a high rate is comparing"
            " two seeds.",
        ),
    )


def published() -> Figure:
    """Return what was published of large batches."""
    return rules.published_error()


def growth() -> Table:
    """Return a decaying rate beside a growing batch."""
    return rules.growth_table()


def surprises() -> ipywidgets.HTML:
    """Return all guesses beside the results."""
    return lesson.surprises()
