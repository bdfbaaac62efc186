"""Prefix caching: keys and values of a prompt's first tokens, stored for the requests that begin alike.

Memory that no running sequence needs still holds blocks of earlier requests, until they are evicted, least recently
used first (vLLM, "Automatic Prefix Caching"; Zheng et al. 2024, "SGLang", RadixAttention). So the memory holds the
last n requests: of each its own tokens, and each of G prefixes once, if one of the n had it:

    n own + G shared (1 - exp(-f n / G)) = room        hit = 1 - exp(-f n / G)

f: share of the requests with a prefix, all prefixes alike. This is the approximation of Che, Tung and Wang 2002 for
caches that evict the least recently used. The rate of requests cancels: it is how many fit that counts, not how fast
they come.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from math import ceil, exp
from typing import Any, NamedTuple

from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.service import Service

BISECTIONS = 60


class Reuse(NamedTuple):
    """What the memory of a replica saves, in the steady state.

    requests: whose keys and values fit, running ones first. hit: probability that a request finds its prefix; tokens:
    of its prompt that are then not computed.
    """

    requests: float
    hit: float = 0.0
    tokens: int = 0

    @property
    def cases(self) -> tuple[tuple[float, int], ...]:
        """Probability of each case, and the tokens of the prompt that are stored then."""
        return ((self.hit, self.tokens), (1 - self.hit, 0)) if self.hit else ((1.0, 0),)


def reuse_of(service: Service, prices: Prices, room: float) -> Reuse:
    """Return how many mean requests fit `room` bytes of a device, and how many of them find their prefix."""
    load, whole = service.requests, prices.kv_cache_bytes(service.longest - 1)
    tokens = blocks_of(load.shared, service.service.prefix_block) * service.service.prefix_block
    if not tokens:
        return Reuse(room / whole)
    shared = tokens * bytes_of_token(prices)
    own, share = whole - load.sharing * shared, load.sharing / load.prefixes
    low, high = 0.0, room / own
    for _ in range(BISECTIONS):
        n = (low + high) / 2
        held = n * own + load.prefixes * shared * (1 - exp(-share * n))
        low, high = (n, high) if held < room else (low, n)
    return Reuse(low, load.sharing * (1 - exp(-share * low)), tokens)


def bytes_of_token(prices: Prices) -> float:
    """Return the bytes of cache of one token more, on a device."""
    return prices.kv_cache_bytes(2) - prices.kv_cache_bytes(1)


def blocks_of(tokens: int, block: int) -> int:
    """Return the whole blocks in some tokens; none without blocks."""
    return tokens // block if block else 0


@dataclass(slots=True)
class Run:
    """Consecutive blocks of a prefix, from `first` to before `end`, that were last used together; none if emptied.

    Bytes that no other request can use are a run of blocks of one byte, with prefix -1.
    """

    prefix: int
    first: float
    end: float


class PrefixCache:
    """The blocks of prefixes that a replica stores: pinned by running requests, or left until they are evicted.

    block: tokens of each; 0: nothing is stored. size: bytes of a block. Who uses a block uses all before it. So
    those before the longest pinned beginning of a prefix are pinned, and the rest is a few runs, the later the older.
    """

    def __init__(self, block: int = 0, size: float = 0.0) -> None:
        self.block, self.size = block, size
        self.pins: defaultdict[int, Counter[int]] = defaultdict(Counter)  # requests by blocks
        # What is left of a prefix, the oldest run first.
        self.left: defaultdict[int, deque[Run]] = defaultdict(deque)
        self.order = OrderedDict[int, Run]()  # of all, by id, least recently used first
        self.pinned = self.idle = 0.0  # bytes that running requests use, and of what is left

    def __contains__(self, key: Any) -> bool:
        """Return whether a block is stored: a prefix and the place in it."""
        return key[1] < self._stored(key[0])

    def find(self, prefix: int, shared: int) -> int:
        """Pin the blocks of a prefix's first `shared` tokens, up to the first that is missing; return how many."""
        found = min(blocks_of(shared, self.block), self._stored(prefix))
        self._pin(prefix, found)
        return found

    def add(self, prefix: int, shared: int, pinned: int) -> int:
        """Store the blocks of a prefix that a request has computed, beside those that it pins; return how many."""
        blocks = blocks_of(shared, self.block)
        self._pin(prefix, blocks)
        self._unpin(prefix, pinned)
        return blocks

    def release(self, prefix: int, blocks: int, own: tuple[int, float] = (0, 0.0)) -> None:
        """Unpin a request's blocks, the end of the prefix to be evicted first. own: its number and other bytes."""
        if self.block and own[1]:
            run = Run(-1, 0.0, own[1])
            self.order[id(run)] = run
            self.idle += own[1]
        before = self._longest(prefix)
        self._unpin(prefix, blocks)
        if before > (now := self._longest(prefix)):
            self.left[prefix].append(run := Run(prefix, now, before))
            self.order[id(run)] = run
            self.pinned -= (before - now) * self.size
            self.idle += (before - now) * self.size

    def shrink(self, room: float) -> None:
        """Evict until what is not pinned fits `room` bytes."""
        while self.idle > room and self.order:
            run, over = next(iter(self.order.values())), self.idle - room
            size = self.size if run.prefix >= 0 else 1.0
            gone = min(run.end - run.first, ceil(over / size) if run.prefix >= 0 else over)
            run.end -= gone
            self.idle -= gone * size
            if run.end <= run.first:
                self.order.popitem(last=False)
                if run.prefix >= 0:
                    self.left[run.prefix].popleft()
                    self._forget(run.prefix)

    def _longest(self, prefix: int) -> int:
        return max(self.pins.get(prefix, ()), default=0)

    def _stored(self, prefix: int) -> int:
        left = self.left.get(prefix)
        return int(left[0].end) if left else self._longest(prefix)

    def _pin(self, prefix: int, blocks: int) -> None:
        if not blocks:
            return
        before, left = self._longest(prefix), self.left[prefix]
        self.pins[prefix][blocks] += 1
        self.pinned += max(0, blocks - before) * self.size
        while left and left[-1].first < blocks:
            run = left[-1]
            used = min(run.end, blocks) - run.first
            run.first += used
            self.idle -= used * self.size
            if run.first < run.end:
                break
            del self.order[id(left.pop())]
        self._forget(prefix)

    def _unpin(self, prefix: int, blocks: int) -> None:
        self.pins[prefix][blocks] -= 1
        if self.pins[prefix][blocks] <= 0:  # none is pinned by a request without blocks
            del self.pins[prefix][blocks]
        self._forget(prefix)

    def _forget(self, prefix: int) -> None:
        for held in (self.pins, self.left):
            if prefix in held and not held[prefix]:
                del held[prefix]
