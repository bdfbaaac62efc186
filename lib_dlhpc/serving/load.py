"""The steady state of a replica under Poisson arrivals: Little's law and a wait in the queue.

A request holds its place for h(b) = first + (answer - 1) s(b) / (1 - rate * interruption), in a batch of b: of a
second, rate * interruption belongs to prompts of others, and stretches the steps s that decode (with drafts they are
fewer than answer - 1). By Little's law

    b = rate * h(b)

A request waits for a place among the most that are decoded at once, as at as many servers (Sakasegawa 1977) whose
service time scatters as prompts and answers do (Allen and Cunneen; of one server it is exact: M/G/1), and for the end
of the step that runs when it arrives.
"""

from math import ceil, exp, hypot, inf, sqrt
from typing import NamedTuple

from lib_dlhpc.serving.price import Chunk, Prices
from lib_dlhpc.serving.service import Service

BISECTIONS = 50


class Load(NamedTuple):
    """What the offered rate gives; times in s, of a request.

    batch: mean sequences in a replica. utilization: of its places. wait: until the prompt is begun.
    tokens_per_second: of all replicas.
    """

    batch: float
    utilization: float
    saturated: bool
    tokens_per_second: float
    wait: float
    ttft: float
    tpot: float


class _Held(NamedTuple):
    """A request in a batch: s from its first step to its first token, from there to its end, of a step that decodes;
    the part of the time that prompts of others take."""

    first: float
    rest: float
    step: float
    prompts: float


def load_of(
    service: Service, prices: Prices, most: int, tokens_per_second: float, tpot: float
) -> Load:
    """Return the steady state; most: sequences that are decoded at once, and what such full batches reach."""
    requests, rate = service.requests, service.requests.rate / service.service.replicas
    at_most = _held(service, prices, rate, most)
    hold = at_most.first + at_most.rest
    if rate * hold >= most:
        return Load(most, 1.0, True, tokens_per_second, inf, inf, tpot)
    low, high = 0.0, float(most)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        at = _held(service, prices, rate, max(middle, 1.0))
        low, high = (middle, high) if rate * (at.first + at.rest) > middle else (low, middle)
    at, busy = _held(service, prices, rate, max(high, 1.0)), rate * hold / most
    scatter = hypot(requests.prompt_spread * at_most.first, requests.answer_spread * at_most.rest)
    wait = busy ** (sqrt(2 * (most + 1)) - 1) / (most * (1 - busy)) * hold / 2
    wait *= 1 + (scatter / hold) ** 2
    if most > 1:  # a place may be free while a step runs
        step = at.prompts * at.first + (1 - at.prompts) * at.step
        wait += (1 - exp(-high)) * step / 2
    tokens = requests.rate * requests.answer
    return Load(
        high, busy, False, tokens, wait, wait + at.first, at.rest / max(1, requests.answer - 1)
    )


def _held(service: Service, prices: Prices, rate: float, batch: float) -> _Held:
    """Return how long a request holds its place in such a batch, between whole batches in proportion."""
    low, part = int(batch), batch - int(batch)
    one = _of_whole(service, prices, rate, low)
    if not part:
        return one
    next_one = _of_whole(service, prices, rate, low + 1)
    return _Held(*(a + part * (b - a) for a, b in zip(one, next_one, strict=True)))


def _of_whole(service: Service, prices: Prices, rate: float, batch: int) -> _Held:
    load, chunk = service.requests, service.service.chunk
    context = load.prompt + load.answer / 2
    step = prices.decode(batch, context).total
    first = interruption = prices.prefill(load.prompt).total
    if chunk:
        steps, size = ceil(load.prompt / chunk), min(chunk, load.prompt)
        others = [context] * (batch - 1)
        both = prices.step([Chunk(size, (load.prompt - size) // 2)], others).total
        first, interruption = steps * both, steps * (both - prices.step((), others).total)
    prompts = min(rate * interruption * (batch - 1) / batch, 0.999)
    return _Held(first, prices.steps(load.answer) * step / (1 - prompts), step, prompts)
