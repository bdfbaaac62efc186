"""decode_with_draft: a small decoder drafts tokens, a large one verifies them; the text is the large one's.

A draft x is drawn from q, what the small decoder thinks comes next, and accepted with probability min(1, p(x) / q(x)),
where p is what the large one thinks. In place of the first that is rejected a token is drawn from max(0, p - q),
scaled to 1. So x comes out with probability min(p, q) + max(0, p - q) = p: the distribution is that of the large
decoder, whatever q is (Leviathan et al. 2023, section 2.3 and appendix A.1). Greedy decoding is the case in which p
and q are 1 for one token each.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving.decoder import Decoder

Choose = Callable[[Floats], int]
"""Return an index, drawn with these probabilities."""
TEXT = "text"  # the name of the sequence in both decoders


class Drafted(NamedTuple):
    """An answer, the steps of the large decoder, the tokens that were drafted and those that were accepted."""

    answer: list[int]
    steps: int
    drafted: int
    accepted: int


def decode_with_draft(
    target: Decoder,
    draft: Decoder,
    prompt: Sequence[int],
    answer: int,
    drafts: int,
    temperature: float = 0.0,
    choose: Choose | None = None,
) -> Drafted:
    """Return `answer` tokens after a prompt, distributed as those of the target alone.

    drafts: most tokens that are drafted before a step of the target. temperature: 0 takes the most likely token.
    choose: the source of randomness, by default a generator with seed 0. Raises SpecError for one decoder as both, or
    for two of different vocabularies.
    """
    _check_pair(target, draft)
    choose = choose or drawing(np.random.default_rng(0))
    text, goal, steps, drafted, accepted = list(prompt), len(prompt) + answer, 0, 0, 0
    for decoder in (target, draft):
        decoder.keep(TEXT, 0)
    while len(text) < goal:
        tokens, q = _drafts(draft, text, min(drafts, goal - len(text) - 1), temperature, choose)
        p = _read(target, text + tokens, 1 + len(tokens), temperature)
        new = verified(tokens, q, p, choose)
        steps, drafted, accepted = steps + 1, drafted + len(tokens), accepted + len(new) - 1
        text += new
        for decoder in (target, draft):
            decoder.keep(TEXT, len(text) - 1)
    return Drafted(text[len(prompt) :], steps, drafted, accepted)


def verified(
    drafts: Sequence[int], q: Sequence[Floats], p: Sequence[Floats], choose: Choose
) -> list[int]:
    """Return the accepted drafts and one token more.

    q: of each draft, the probabilities that it was drawn with. p: those of the target, one more than drafts.
    """
    for index, token in enumerate(drafts):
        odds = min(1.0, p[index][token] / q[index][token])
        if choose(np.array([1.0 - odds, odds])) == 0:
            return [*drafts[:index], choose(scaled(np.maximum(0.0, p[index] - q[index])))]
    return [*drafts, choose(p[len(drafts)])]


def drawing(rng: np.random.Generator) -> Choose:
    """Return what draws an index with given probabilities."""
    return lambda weights: int(rng.choice(len(weights), p=scaled(weights)))


def probabilities(logits: NDArray[Any], temperature: float) -> Floats:
    """Return the probabilities of the next token; temperature 0: 1 for the most likely one."""
    wide = logits.astype(np.float64)
    if not temperature:
        return np.eye(len(wide))[int(np.argmax(wide))]
    return scaled(np.exp((wide - wide.max()) / temperature))


def scaled(weights: Floats) -> Floats:
    """Return weights that sum to 1."""
    return np.asarray(weights / weights.sum())


def _check_pair(target: Decoder, draft: Decoder) -> None:
    """Raise SpecError unless these are two decoders, each with a cache of its own, of the same words."""
    names = [each.model.name or each.model.family for each in (target, draft)]
    if draft is target:
        raise SpecError(
            f"target and draft are one Decoder of {names[0]}, with one cache; legal: two, of one model or of two."
        )
    words = [each.model.layers[0].attributes["vocabulary"] for each in (target, draft)]
    if words[0] != words[1]:
        raise SpecError(
            f"draft {names[1]} has a vocabulary of {words[1]:,}; legal: that of the target {names[0]}, {words[0]:,}."
        )


def _drafts(
    draft: Decoder, text: list[int], count: int, temperature: float, choose: Choose
) -> tuple[list[int], list[Floats]]:
    """Return tokens that the draft decoder draws after the text, and the probabilities of each."""
    tokens: list[int] = []
    seen: list[Floats] = []
    for _ in range(count):
        seen += _read(draft, text + tokens, 1, temperature)
        tokens.append(choose(seen[-1]))
    return tokens, seen


def _read(decoder: Decoder, text: list[int], last: int, temperature: float) -> list[Floats]:
    """Let a decoder read what it has not of a text; return the probabilities after each of its last tokens."""
    logits = decoder.step([(TEXT, text[decoder.held.get(TEXT, 0) :])], every=True)
    return [probabilities(logit, temperature) for logit in logits[-last:]]
