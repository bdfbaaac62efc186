"""What module 06 asks: the figures and the numbers of lesson.toml."""

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.large_batch import rules, time
from lib_dlhpc.explore.large_batch.live import break_and_repair
from lib_dlhpc.explore.large_batch.real import RANKS, train_here
from lib_dlhpc.explore.large_batch.rules import base, longer_step, mean, times_base
from lib_dlhpc.studies.large_batch_results import batches, paired, stored

LARGE = times_base(32)


def lars_over(rule: str, batch: int) -> float:
    """Return Student's t of LARS over another rule, seed by seed."""
    return paired(stored(), ("lars", batch), (rule, batch)).t


def lars_at() -> list[int]:
    """Return the batches at which LARS and retuned SGD were run."""
    return [b for b in rules.BATCHES if b in batches(stored(), "lars")]


def pays(critical: int) -> int:
    """Return the most GPUs from which twice as many are worth it."""
    return max(
        p for p in time.GPUS[:-1] if time.saved(time.Cost(gpus=p, critical=critical)) >= time.WORTH
    )


def halved() -> float:
    """Return how many times as fast half the images of a GPU are, on 2,048 GPUs."""
    many, few = (time.seconds_to_accuracy(time.Cost(gpus=2048, images=n), 2048) for n in (32, 16))
    return float(many / few)


def first_step(draw: np.random.Generator) -> Drawn:
    """Return a layer of one learner, and the length of its first step under LARS."""
    weights, gradient = int(draw.integers(8, 20)), round(float(draw.uniform(0.2, 2.0)), 1)
    rate = int(draw.choice([5, 10, 20]))
    own = {"weights": weights, "gradient": gradient, "rate": rate}
    step = rules.lars_step(weights, gradient, rate)
    wrong = {
        "sgd": rate * gradient,
        "local_rate": step / gradient,
        "no_rate": rules.lars_step(weights, gradient, 1),
        "no_trust": rules.lars_step(weights, gradient, rate, trust=1.0),
    }
    if gradient == 1:
        del wrong["local_rate"]
    return own, step, wrong


lesson = Lesson.read(
    __file__,
    outcomes={
        "thirty_two_times": (lambda: 100 * mean("linear", LARGE).mean, break_and_repair),
        "retuned": (lambda: 100 * mean("tuned", LARGE).mean, rules.how_far),
        "all_at_once": (
            lambda: time.steps_needed(4000),
            lambda: ipywidgets.VBox([time.steps_measured(), time.time_to_accuracy()]),
        ),
        "hidden_bug": (lambda: longer_step("lars", RANKS), train_here),
    },
    numbers={
        "batch": times_base(1),
        "large": LARGE,
        "base": lambda: base().mean,
        "wins": lambda: next(b for b in lars_at() if lars_over("tuned", b) > rules.NOTABLE),
        "breaks": lambda: next(
            b for b in lars_at() if mean("lars", b).mean < base().mean - rules.CLOSE
        ),
        "loses": lambda: max(b for b in lars_at() if mean("lars", b).mean < mean("tuned", b).mean),
        "lamb": lambda: lars_over("lamb", LARGE),
        "sure": lambda: "more than" if abs(lars_over("lamb", LARGE)) > rules.NOTABLE else "within",
        "steps_of_64": lambda: time.steps_needed(64),
        "pays_4096": lambda: pays(4096),
        "pays_65536": lambda: pays(65536),
        "halved": halved,
        "ranks": RANKS,
        "longer": lambda: longer_step("sgd", RANKS),
    },
    draws={"first_step": first_step},
    tables={"published": rules.published_error, "growth": rules.growth_table},
)
ask = lesson.ask
