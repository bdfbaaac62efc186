"""The steady state of a replica under Poisson arrivals: Little's law and a wait in the queue.

A request holds its place for h(b) = first + (answer - 1) s(b) / (1 - rate * interruption), in a batch of b: of a
second, rate * interruption belongs to prompts of others, and stretches the steps s that decode (with drafts they are
fewer than answer - 1). By Little's law

    b = rate * h(b)

A request waits for a place among the most that are decoded at once, as at as many servers (Sakasegawa 1977) whose
service time scatters as prompts and answers do (Allen and Cunneen; of one server it is exact: M/G/1), and for the end
of the step that runs when it arrives.
"""

from math import ceil, exp, hypot, inf
from typing import NamedTuple

from lib_dlhpc.serving.pools import Pools
from lib_dlhpc.serving.prefix import Reuse
from lib_dlhpc.serving.price import Chunk, Prices
from lib_dlhpc.serving.queueing import queue_wait, settled
from lib_dlhpc.serving.service import Service


class Load(NamedTuple):
    """What the offered rate gives; times in s, of a request.

    batch: mean sequences in a replica, of those that decode. utilization: of its places, or of what is busiest in two
    pools. wait: until the prompt is begun.
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
    service: Service, prices: Prices, reuse: Reuse, most: int, tokens_per_second: float, tpot: float
) -> Load:
    """Return the steady state; most: sequences that are decoded at once, and what such full batches reach."""
    requests, rate = service.requests, service.requests.rate / service.service.replicas
    at_most = _held(service, prices, reuse, rate, most)
    hold = at_most.first + at_most.rest
    if rate * hold >= most:
        return Load(most, 1.0, True, tokens_per_second, inf, inf, tpot)

    def inside(size: float) -> float:
        one = _held(service, prices, reuse, rate, size)
        return rate * (one.first + one.rest)

    batch = settled(inside, most)
    at = _held(service, prices, reuse, rate, max(batch, 1.0))
    scatter = hypot(requests.prompt_spread * at_most.first, requests.answer_spread * at_most.rest)
    wait = queue_wait(rate, hold, most, scatter / hold)
    if most > 1:  # a place may be free while a step runs
        step = at.prompts * at.first + (1 - at.prompts) * at.step
        wait += (1 - exp(-batch)) * step / 2
    tokens, each = requests.rate * requests.answer, at.rest / max(1, requests.answer - 1)
    return Load(batch, rate * hold / most, False, tokens, wait, wait + at.first, each)


def load_of_pools(service: Service, pools: Pools, tokens_per_second: float, tpot: float) -> Load:
    """Return the steady state of replicas that only read prompts and others that decode, as one service's."""
    busy, later = max(pools.reading, pools.sending, pools.decoding), service.requests.answer - 1
    ttft = pools.wait + pools.prefill
    if pools.saturated:
        return Load(pools.batch, 1.0, True, tokens_per_second, pools.wait, ttft, tpot)
    each = (pools.moved + pools.rest) / later if later else 0.0
    tokens = service.requests.rate * service.requests.answer
    return Load(pools.batch, busy, False, tokens, pools.wait, ttft, each)


def _held(service: Service, prices: Prices, reuse: Reuse, rate: float, batch: float) -> _Held:
    """Return how long a request holds its place in such a batch, between whole batches in proportion."""
    low, part = int(batch), batch - int(batch)
    one = _of_whole(service, prices, reuse, rate, low)
    if not part:
        return one
    next_one = _of_whole(service, prices, reuse, rate, low + 1)
    return _Held(*(a + part * (b - a) for a, b in zip(one, next_one, strict=True)))


def _of_whole(service: Service, prices: Prices, reuse: Reuse, rate: float, batch: int) -> _Held:
    load, chunk = service.requests, service.service.chunk
    context = load.prompt + load.answer / 2
    step, first, interruption = prices.decode(batch, context).total, 0.0, 0.0
    others = [context] * (batch - 1)
    alone = prices.step((), others).total if chunk else 0.0
    for share, stored in reuse.cases:
        rest = load.prompt - stored
        steps, size = (ceil(rest / chunk), min(chunk, rest)) if chunk else (1, rest)
        both = prices.step(
            [Chunk(size, stored + (rest - size) // 2)], others if chunk else ()
        ).total
        first, interruption = (
            first + share * steps * both,
            interruption + share * steps * (both - alone),
        )
    prompts = min(rate * interruption * (batch - 1) / batch, 0.999)
    return _Held(first, prices.steps(load.answer) * step / (1 - prompts), step, prompts)
