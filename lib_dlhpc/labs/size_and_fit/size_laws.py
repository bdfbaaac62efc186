"""A learner's tokens within a budget, and choice of a model size, beside those of a scaling law.

size_findings(tokens, choose, tasks)    tasks: a family of sizes on a machine, days, tokens to be served
arguments(tasks)                        what the functions are called with
A choice is compared with those that classic mistakes make.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.convergence.loss_law import SERVE, TRAIN, law_of
from lib_dlhpc.labs.findings import Finding, once
from lib_dlhpc.labs.formula_cases import Case, compared, value_of
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.units import DAY
from lib_dlhpc.spec.units import format_quantity as show

say = sentences(__file__)

TOKENS = "Tokens: how many to train on within the days, in addition to those served"
FITS = "Choice: it is one of the sizes, and fits"
LOSS = "Choice: no size that fits has a lower loss"
LAW = "besiroglu"
CLEAR = 0.003  # nats by which every mistake is worse than the best size
WEIGHTS = (0.4, 0.8, 1.4, 2.4, 4.0, 6.7, 11.0, 18.0, 30.0, 50.0)  # billions
SHARES = (0.0, 0.2, 4.0)  # of the budget, as served tokens at the price of trained ones
Choose = Callable[..., Any]


class Sized(NamedTuple):
    """A budget. sizes: what is known of each size: weights, rate (tokens/s), bytes on a GPU; room: B of a GPU."""

    sizes: tuple[dict[str, float], ...]
    room: float
    days: float
    served: float

    @property
    def words(self) -> str:
        """The task in words."""
        return (
            f"{self.days:g} days, {show(self.served, '')} tokens to serve, {show(self.room, 'B')} per GPU, drawn rates;"
            f" sizes of {show(self.sizes[0]['weights'], '')} to {show(self.sizes[-1]['weights'], '')} weights"
        )


@lru_cache(maxsize=64)
def sized_of(seed: int, hidden: bool = False) -> tuple[Sized, ...]:
    """Return a learner's budgets: one that memory limits, and one that does not."""
    rng = np.random.default_rng([seed, 51, hidden])
    return tuple(_clear(rng, tight) for tight in (True, False))


def _clear(rng: np.random.Generator, tight: bool) -> Sized:
    """Return a budget in which no mistake finds a size as good as the best; memory excludes that if `tight`."""
    while True:
        found = _drawn(rng)
        best = losses(found, everything=True)
        if tight:
            room = found.sizes[int(np.argmin(best))]["bytes"] * 0.97
            found = found._replace(room=room)
        least = min(losses(found))
        if np.isfinite(least) and all(other > least + CLEAR for _, other in _wrong(found)):
            return found


def _drawn(rng: np.random.Generator) -> Sized:
    """Draw a budget: each size has an MFU of its own, layers split over 8 GPUs, and ZeRO 1 over all."""
    gpus, peak = int(rng.choice((64, 128, 256))), float(rng.choice((312e12, 989e12)))
    rates, sizes = rng.uniform(0.2, 0.6, len(WEIGHTS)), []
    for billions, share in zip(WEIGHTS, rates, strict=True):
        weights = billions * 1e9
        rate = share * gpus * peak / (6 * weights)
        held = 4 * weights / 8 + 12 * weights / gpus + 12e9
        sizes.append({"weights": weights, "rate": float(f"{rate:.4g}"), "bytes": held})
    days = float(rng.integers(2, 15))
    middle = sizes[len(sizes) // 2]
    served = float(f"{rng.uniform(0.5, 2.0) * middle['rate'] * days * DAY:.2g}")
    return Sized(tuple(sizes), 192e9, days, served)


def loss(weights: float, tokens: float) -> float:
    """Return the loss of a size that has seen `tokens`, nats per token. Raises ValueError for less than one."""
    if tokens < 1:
        raise ValueError(f"a size that is trained on {tokens:,.0f} tokens has no loss")
    return float(law_of(LAW).loss(weights, tokens))


def losses(own: Sized, everything: bool = False) -> list[float]:
    """Return the loss of each size; infinite if untrained, or too large unless `everything` counts."""
    weights, rate, held = (
        np.array([each[key] for each in own.sizes]) for key in ("weights", "rate", "bytes")
    )
    seen = rate * own.days * DAY - own.served * SERVE / TRAIN
    fine = (seen > 0) & (everything | (held <= own.room))
    found = np.where(fine, law_of(LAW).loss(weights, np.where(fine, seen, 1.0)), np.inf)
    return [float(each) for each in found]


def _wrong(own: Sized) -> Iterator[tuple[str, float]]:
    """Yield what a mistake is called, and the loss of the size that it chooses."""
    right = losses(own)
    fit = [place for place, each in enumerate(own.sizes) if each["bytes"] <= own.room]
    tokens = {place: own.sizes[place]["rate"] * own.days * DAY for place in fit}
    ratio = {place: tokens[place] / own.sizes[place]["weights"] for place in fit}
    yield say.largest, right[fit[-1]]
    yield say.most_tokens, right[fit[0]]
    near = min(fit, key=lambda place: abs(np.log(ratio[place] / 20)))
    yield say.twenty_tokens, right[near]
    unserved = losses(own._replace(served=0.0))
    yield say.no_serving, right[int(np.argmin(unserved))]


def best(own: Sized) -> int:
    """Return the place of the size with the lowest loss that fits."""
    return int(np.argmin(losses(own)))


def size_findings(tokens: Choose, choose: Choose, tasks: Sequence[Sized]) -> list[Finding]:
    """Return whether the tokens are right, and the choices fit and are the best."""
    cases = [_tokens(own, share) for own in tasks for share in SHARES]
    fits = [(own.words, lambda own=own: _misfit(choose, own)) for own in tasks]
    lowest = [(own.words, lambda own=own: _worse(choose, own)) for own in tasks]
    return [
        compared(TOKENS, tokens, cases, say.tokens_done, 1e-6),
        once(FITS, fits, "In every budget."),
        once(LOSS, lowest, say.loss_done),
    ]


def arguments(tasks: Sequence[Sized]) -> dict[str, list[tuple[Any, ...]]]:
    """Return what the functions are called with, by their names."""
    return {
        "tokens": [_tokens(own, share).arguments for own in tasks for share in SHARES],
        "choose": [
            ([dict(each) for each in own.sizes], own.room, own.days, own.served, loss)
            for own in tasks
        ],
    }


def _tokens(own: Sized, share: float) -> Case:
    """Return the tokens of the best size, if as many as a share of them are served."""
    rate = own.sizes[best(own)]["rate"]
    full = rate * own.days * DAY
    served = share * full
    slips = [
        (say.wrong_day, seconds * rate * own.days - served / 3)
        for seconds in (1, 24, 60, 1440, 3600)
    ]
    if served:
        slips += [
            (say.no_serving, full),
            (say.serving_flop, full - served),
            (say.serving_flop, full - served / 2),
            (say.serving_flop, full - 2 * served),
            (say.serving_flop, full - 3 * served),
            (say.serving_added, full + served / 3),
        ]
    left = full - served / 3
    if left < 0:
        slips = [(say.below_0, left)]
    about = f"{rate:,.0f} tokens/s for {own.days:g} days, {show(served, '')} served"
    return Case(about, (rate, own.days, served), max(left, 0.0), slips, say.about_tokens)


def _chosen(choose: Choose, own: Sized) -> int:
    """Return the place of the chosen size. Raises LabError where it is none."""
    sizes = [dict(each) for each in own.sizes]
    place = value_of(choose, sizes, own.room, own.days, own.served, loss)
    if not (float(place).is_integer() and 0 <= place < len(sizes)):
        raise LabError(
            f"choose returns {place:g}: expected the index of a size, 0 to {len(sizes) - 1}."
        )
    return int(place)


def _misfit(choose: Choose, own: Sized) -> str:
    chosen = own.sizes[_chosen(choose, own)]
    if chosen["bytes"] <= own.room:
        return ""
    return f"{show(chosen['weights'], '')} weights need {show(chosen['bytes'], 'B')}, which is too much."


def _worse(choose: Choose, own: Sized) -> str:
    place, right = _chosen(choose, own), losses(own)
    if right[place] <= min(right):
        return ""
    size = f"{show(own.sizes[place]['weights'], '')} weights"
    if own.sizes[place]["bytes"] > own.room:
        return f"{size} do not fit."
    if not np.isfinite(right[place]):
        return f"{size} are not trained at all: serving takes the whole budget."
    hints = [said for said, other in (*_wrong(own), _swapped(own)) if other == right[place]]
    more = right[place] - min(right)
    return f"{size} give a loss {more:.3f} nats above the lowest. {' Or: '.join(hints)}".strip()


def _swapped(own: Sized) -> tuple[str, float]:
    """Return the hint at swapped arguments of the law, and the loss of the size that they choose."""
    right, least = losses(own), {}
    for place, each in enumerate(own.sizes):
        if np.isfinite(right[place]):
            seen = each["rate"] * own.days * DAY - own.served * SERVE / TRAIN
            least[place] = loss(seen, each["weights"])
    return say.swapped_loss, right[min(least, key=least.__getitem__)]
