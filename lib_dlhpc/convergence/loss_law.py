"""The loss of a language model by its weights and tokens: published scaling laws, and the best split of a budget.

    L(N, D) = E + A / N^alpha + B / D^beta,        C = 6 N D + 2 N S

N: weights, embeddings included; D: tokens, each seen once; S: tokens served later; C: FLOP. L is in nats per token of
the data and the tokenizer of the fit: compare losses of one law only. Beyond the weights and tokens that were measured
a law extrapolates, and `LossLaw.beyond` says so. Left out: repeated tokens, other architectures, mixtures of experts,
accuracy of tasks.

Sources: Hoffmann et al. 2022, arXiv:2203.15556, equations 2, 4 and 10 (approach 3); Besiroglu et al. 2024,
arXiv:2404.10102, equation 3, refitted to 240 points read off Hoffmann's figure 4; Sardana et al. 2024,
arXiv:2401.00448, section 2 (served tokens).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.units import format_quantity as show

TRAIN, SERVE = 6, 2  # FLOP per weight and token: forward and backward, forward
HALVINGS = 200


class Split(NamedTuple):
    """A model and its training: weights, tokens, loss (nats per token), FLOP of training and of serving."""

    weights: float
    tokens: float
    loss: float
    train_flop: float
    serve_flop: float

    @property
    def flop(self) -> float:
        """FLOP of both."""
        return self.train_flop + self.serve_flop


@dataclass(frozen=True)
class LossLaw:
    """A published law. weights, tokens: the least and the most that were measured."""

    title: str
    floor: float  # E
    of_weights: float  # A
    of_tokens: float  # B
    alpha: float
    beta: float
    weights: tuple[float, float] = (70e6, 16e9)
    tokens: tuple[float, float] = (5e9, 500e9)

    def loss(self, weights: Any, tokens: Any) -> Any:
        """Return the loss in nats per token; arguments may be arrays, and infinite."""
        return self.floor + self._of_weights(weights) + self._of_tokens(tokens)

    def split(self, compute: float, served: float = 0.0) -> Split:
        """Return the weights and tokens of the least loss for `compute` FLOP, serving `served` tokens included.

        Without served tokens it is the closed form of Hoffmann's equation 4. Raises SpecError for a budget that is not
        positive or does not cover serving with a single weight, and for a negative number of tokens.
        """
        _positive("compute", compute)
        _not_negative("served", served)
        if not served:
            share = self.beta / (self.alpha + self.beta)
            ratio = self.alpha * self.of_weights / (self.beta * self.of_tokens)
            weights = ratio ** (1 / (self.alpha + self.beta)) * (compute / TRAIN) ** share
            return self._split(weights, compute / TRAIN / weights, 0.0)

        def tokens(weights: float) -> float:
            return compute / (TRAIN * weights) - served * SERVE / TRAIN

        most = compute / (SERVE * served)
        if most <= 1:
            raise SpecError(
                f"served = {served:g}: legal for {compute:g} FLOP: below {compute / SERVE:g}."
            )
        weights = _root(lambda n: self._gain(n, tokens(n), served), most)
        return self._split(weights, tokens(weights), served)

    def cheapest(self, loss: float, served: float = 0.0) -> Split:
        """Return the weights and tokens that reach `loss` with the fewest FLOP, serving included.

        Raises SpecError for a loss at or below the floor E, one that a single weight and token reach, or a negative
        number of tokens.
        """
        if not self.floor < loss < self.loss(1, 1):
            raise SpecError(
                f"loss = {loss:g}: legal: above {self.floor:g}, the floor of {self.title},"
                f" and below {self.loss(1, 1):g}."
            )
        _not_negative("served", served)

        def tokens(weights: float) -> float:
            left = loss - self.floor - self._of_weights(weights)
            return float((self.of_tokens / left) ** (1 / self.beta)) if left > 0 else np.inf

        weights = _root(lambda n: self._gain(n, tokens(n), served), np.inf)
        return self._split(weights, tokens(weights), served)

    def beyond(self, weights: float, tokens: float) -> str:
        """Say where the law extrapolates, or nothing."""
        named = (("parameters", weights, self.weights), ("tokens", tokens, self.tokens))
        return "; ".join(
            f"{show(value, '')} {name} are outside the fitted range of {show(low, '')} to {show(high, '')}"
            for name, value, (low, high) in named
            if not low <= value <= high
        )

    def _of_weights(self, weights: Any) -> Any:
        return self.of_weights / np.power(weights, self.alpha)

    def _of_tokens(self, tokens: Any) -> Any:
        return self.of_tokens / np.power(tokens, self.beta)

    def _gain(self, weights: float, tokens: float, served: float) -> float:
        """Return the gain from more weights less the loss from the tokens given up for them; falls with the weights.

        Zero at the best split of a compute budget, and where a loss takes the fewest FLOP: the Lagrange condition of
        both is alpha A / N^alpha = beta B / D^beta (1 + S / 3 D).
        """
        if tokens <= 0:
            return -np.inf
        if np.isinf(tokens):
            return np.inf
        each = 1 + served * SERVE / TRAIN / tokens
        return float(
            self.alpha * self._of_weights(weights) - self.beta * self._of_tokens(tokens) * each
        )

    def _split(self, weights: float, tokens: float, served: float) -> Split:
        train, serve = TRAIN * weights * tokens, SERVE * weights * served
        return Split(weights, tokens, float(self.loss(weights, tokens)), train, serve)


def _root(falling: Callable[[float], float], most: float) -> float:
    """Return where a falling function of the weights is zero, by halving the interval of their logarithm."""
    low, high = 0.0, float(np.log(min(most, 1e30)))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(float(np.exp(middle))) > 0 else (low, middle)
    return float(np.exp(low))


def _positive(name: str, value: float) -> None:
    if not 0 < value < np.inf:
        raise SpecError(f"{name} = {value:g}: legal: above 0.")


def _not_negative(name: str, value: float) -> None:
    if not 0 <= value < np.inf:
        raise SpecError(f"{name} = {value:g}: legal: 0 or more.")


HOFFMANN = LossLaw("Hoffmann et al. 2022", 1.69, 406.4, 410.7, 0.34, 0.28)
BESIROGLU = LossLaw("Besiroglu et al. 2024", 1.8172, 482.01, 2085.43, 0.3478, 0.3658)
LAWS = {"hoffmann": HOFFMANN, "besiroglu": BESIROGLU}


def law_of(name: str) -> LossLaw:
    """Return a law by its name; raises SpecError with the names that there are."""
    if name not in LAWS:
        raise SpecError(f"law = {name!r}: legal: {', '.join(LAWS)}.")
    return LAWS[name]
