"""Speculative decoding (Leviathan et al. 2023): a small model drafts k tokens, the large one verifies them in one step.

If each draft is accepted with probability a, independently, a step gives 1 + a + a^2 + ... + a^k tokens (equation 1):

    expected tokens of a step  (1 - a^(k+1)) / (1 - a)
    times as fast              (1 - a^(k+1)) / ((1 - a) (k c + 1))     (theorem 3.8)

c is the time of a draft over that of a step of the large model. A step with k + 1 tokens is taken to last as long as
one with a single token, which is true while it waits for weights; price.py prices the step instead.

Source: Leviathan, Kalman, Matias 2023, "Fast Inference from Transformers via Speculative Decoding", arXiv:2211.17192.
"""

from functools import lru_cache

import numpy as np

RENEWED = 8192  # tokens after which steps have forgotten that they began together with the answer


def expected_tokens(acceptance: float, drafts: int) -> float:
    """Return the mean tokens that a step gives a sequence: the accepted drafts, and one of the large model."""
    return sum(acceptance**index for index in range(drafts + 1))


@lru_cache(maxsize=256)
def expected_steps(tokens: int, acceptance: float, drafts: int) -> float:
    """Return the mean steps until a sequence is `tokens` longer; the last step may draft more than it needs.

    More than tokens / expected_tokens: R(n) = 1 + sum over j of P(a step gives j) R(n - j), and 0 from n = 0 down.
    Beyond RENEWED tokens R grows by the mean.
    """
    if tokens > RENEWED:
        more = tokens - RENEWED
        more += -more % (drafts + 1)  # whole steps: exact if all drafts are accepted
        rest = expected_steps(tokens - more, acceptance, drafts)
        return rest + more / expected_tokens(acceptance, drafts)
    reject = (1 - acceptance) * acceptance ** np.arange(drafts)
    odds = np.append(reject, acceptance**drafts)[::-1]  # of drafts + 1 tokens, ..., 2, 1
    steps = np.zeros(drafts + 1 + tokens)  # of -drafts, ..., tokens
    for index in range(drafts + 1, len(steps)):
        steps[index] = 1 + odds @ steps[index - drafts - 1 : index]
    return float(steps[-1])


def improvement(acceptance: float, drafts: int, cost: float) -> float:
    """Return how many times as fast answers come. cost: time of a draft over that of a step of the large model."""
    return expected_tokens(acceptance, drafts) / (drafts * cost + 1)


def drawn_tokens(rng: np.random.Generator, acceptance: float, drafts: int) -> int:
    """Return the tokens of one step of a sequence, drawn: drafts up to the first rejection, and one more."""
    accepted = rng.random(drafts) < acceptance
    return 1 + int(np.logical_and.accumulate(accepted).sum())
