"""The steady state of a replica under Poisson arrivals: Little's law and a wait in the queue.

Prompts are read before others decode, as at one server (M/G/1, Pollaczek and Khinchine): a prompt waits for W, and
leaves N = rate (W + first) others behind, which are read before its request decodes. With them, and with those that
arrive later, a request holds its place in a batch of b for

    h(b) = W + first + ((answer - 1) s(b) + N * interruption) / (1 - rate * interruption)

where s is a step that decodes (with drafts they are fewer than answer - 1). In chunks, a step has at most one, beside
all that decode. By Little's law

    b = rate * h(b)

A request waits for a place among the most that are decoded at once, as at as many servers (Sakasegawa 1977) whose
service time scatters as prompts and answers do (Allen and Cunneen; of one server it is exact: M/G/1), and for the end
of the step that runs when it arrives.
"""

from math import ceil, exp, hypot, inf, sqrt
from typing import NamedTuple

from lib_dlhpc.serving.pools import Pools
from lib_dlhpc.serving.prefix import Reuse
from lib_dlhpc.serving.price import Chunk, Prices
from lib_dlhpc.serving.queueing import queue_wait, settled
from lib_dlhpc.serving.service import Service

SIMULATED = 32, 50
"""Most replicas, and shortest answers in tokens, for which the root over replicas was compared with simulations: times
per token were within 9% (prompts of 1,000 and 4,000 tokens, a quarter to three quarters of the capacity)."""


class Load(NamedTuple):
    """What the offered rate gives; times in s, of a request.

    batch: mean sequences in a replica, of those that decode. utilization: of what full batches reach, or of what is
    busiest in two pools. wait: until the prompt is begun.
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
    """A request in a batch: s that its prompt waits for others, to its first token, from there to its end, of a step
    that decodes; the part of the time that prompts of others take."""

    wait: float
    first: float
    rest: float
    step: float
    prompts: float

    @property
    def total(self) -> float:
        """Seconds that it holds its place."""
        return self.wait + self.first + self.rest


def load_of(service: Service, prices: Prices, reuse: Reuse, most: int) -> Load:
    """Return the steady state; most: sequences that are decoded at once."""
    requests, rate = service.requests, service.requests.rate / service.service.replicas
    later = max(1, requests.answer - 1)
    at_most = _held(service, prices, reuse, rate, most, most)
    longest = prices.answers(most, requests.prompt, requests.answer).total  # of full batches
    longest += sum(
        share * prices.prompts(most, requests.prompt, n).total for share, n in reuse.cases
    )
    if rate * longest >= most:
        tokens = service.service.replicas * most * requests.answer / longest
        return Load(most, 1.0, True, tokens, inf, inf, (longest - at_most.first) / later)
    hold = min(at_most.first + at_most.rest, longest)  # prompts that wait are read together

    def inside(size: float) -> float:
        return rate * min(_held(service, prices, reuse, rate, size, most).total, longest)

    batch = settled(inside, most)
    at = _held(service, prices, reuse, rate, max(batch, 1.0), most)
    scatter = hypot(requests.prompt_spread * at_most.first, requests.answer_spread * at_most.rest)
    wait = queue_wait(rate, hold, most, scatter / hold)
    if most > 1:  # a place may be free while a step runs
        wait += at.wait + (1 - at.prompts) * (1 - exp(-batch)) * at.step / 2
    tokens, each = requests.rate * requests.answer, min(at.rest, longest - at.first) / later
    return Load(batch, rate * longest / most, False, tokens, wait, wait + at.first, each)


def is_simulated(service: Service) -> bool:
    """Return whether the delay of tokens by other prompts was compared with simulations of such a service."""
    serving, (replicas, answer) = service.service, SIMULATED
    alone = serving.replicas == 1 or serving.prefill_replicas > 0
    return alone or (serving.replicas <= replicas and service.requests.answer >= answer)


def load_of_pools(service: Service, pools: Pools, tokens_per_second: float, tpot: float) -> Load:
    """Return the steady state of replicas that only read prompts and others that decode, as one service's."""
    busy, later = max(pools.reading, pools.sending, pools.decoding), service.requests.answer - 1
    ttft = pools.wait + pools.prefill
    if pools.saturated:
        return Load(pools.batch, 1.0, True, tokens_per_second, pools.wait, ttft, tpot)
    each = (pools.moved + pools.rest) / later if later else 0.0
    tokens = service.requests.rate * service.requests.answer
    return Load(pools.batch, busy, False, tokens, pools.wait, ttft, each)


def _held(
    service: Service, prices: Prices, reuse: Reuse, rate: float, batch: float, most: int
) -> _Held:
    """Return how long a request holds its place in such a batch, between whole batches in proportion."""
    low, part = int(batch), batch - int(batch)
    one = _of_whole(service, prices, reuse, rate, low, most)
    if not part:
        return one
    next_one = _of_whole(service, prices, reuse, rate, low + 1, most)
    return _Held(*(a + part * (b - a) for a, b in zip(one, next_one, strict=True)))


def _of_whole(
    service: Service, prices: Prices, reuse: Reuse, rate: float, batch: int, most: int
) -> _Held:
    load, chunk = service.requests, service.service.chunk
    context = load.prompt + load.answer / 2
    step, first, interruption = prices.decode(batch, context).total, 0.0, 0.0
    others = [context] * (batch - 1)
    alone = prices.step((), others).total if chunk else 0.0
    slowest = 0.0
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
        slowest += share * both
    # Of a full batch, one is the request itself. Where requests go to the least busy replica, that holds for any batch,
    # and fewer wait behind one: the root is not derived, but fits simulations within SIMULATED.
    others_rate = rate * (
        1 - 1 / most - (1 - 1 / service.service.replicas) * (1 / batch - 1 / most)
    )
    prompts, busy = (min(others_rate * each, 0.999) for each in (interruption, first))
    wait = busy * first * (1 + load.prompt_spread**2) / (2 * (1 - busy))
    behind = others_rate * (wait + first) * interruption / sqrt(service.service.replicas)
    decoded = prices.steps(load.answer)
    held = (decoded * step + behind) / (1 - prompts)
    return _Held(wait, first, min(held, decoded * slowest) if chunk else held, step, prompts)
