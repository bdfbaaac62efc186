"""Prefix caching: keys and values of a prompt's first tokens, stored for the requests that begin alike.

Memory that no running sequence needs still holds blocks of earlier requests, until they are evicted, least recently
used first (vLLM, "Automatic Prefix Caching"; Zheng et al. 2024, "SGLang", RadixAttention). So the memory holds the
last n requests: of each its own tokens, and each of G prefixes once, if one of the n had it:

    n own + G shared (1 - exp(-f n / G)) = room        hit = 1 - exp(-f n / G)

f: share of the requests with a prefix, all prefixes alike. This is the approximation of Che, Tung and Wang 2002 for
caches that evict the least recently used. The rate of requests cancels: it is how many fit that counts, not how fast
they come.
"""

from collections import OrderedDict
from math import exp
from typing import NamedTuple

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
    load, whole = service.requests, prices.cached(service.longest - 1)
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
    return prices.cached(2) - prices.cached(1)


def blocks_of(tokens: int, block: int) -> int:
    """Return the whole blocks in some tokens; none without blocks."""
    return tokens // block if block else 0


class PrefixCache:
    """The blocks of prefixes that a replica stores: pinned by running requests, or left until they are evicted.

    block: tokens of each; 0: nothing is stored. size: bytes of a block. A block is (prefix, place in it); what a
    request leaves that no other can use is evicted in its turn, as (-1, number of the request).
    """

    def __init__(self, block: int = 0, size: float = 0.0) -> None:
        self.block, self.size = block, size
        self.pins: dict[tuple[int, int], int] = {}
        self.left: OrderedDict[tuple[int, int], float] = OrderedDict()  # least recently used first
        self.idle = 0.0  # bytes of what is left

    def __contains__(self, key: object) -> bool:
        """Return whether a block is stored."""
        return key in self.pins or key in self.left

    @property
    def pinned(self) -> float:
        """The bytes of blocks that running requests use."""
        return len(self.pins) * self.size

    def find(self, prefix: int, shared: int) -> int:
        """Pin the blocks of a prefix's first `shared` tokens, up to the first that is missing; return how many."""
        found = 0
        while found < blocks_of(shared, self.block) and (prefix, found) in self:
            self._pin((prefix, found))
            found += 1
        return found

    def add(self, prefix: int, shared: int, pinned: int) -> int:
        """Store the blocks of a prefix that a request has computed, beside those that it pins; return how many."""
        blocks = blocks_of(shared, self.block)
        for place in range(pinned, blocks):
            self._pin((prefix, place))
        return blocks

    def release(self, prefix: int, blocks: int, own: tuple[int, float] = (0, 0.0)) -> None:
        """Unpin a request's blocks, the end of the prefix to be evicted first. own: its number and other bytes."""
        if self.block and own[1]:
            self.left[-1, own[0]] = own[1]
            self.idle += own[1]
        for key in ((prefix, place) for place in reversed(range(blocks))):
            self.pins[key] -= 1
            if not self.pins[key]:
                del self.pins[key]
                self.left[key] = self.size
                self.idle += self.size

    def shrink(self, room: float) -> None:
        """Evict until what is not pinned fits `room` bytes."""
        while self.left and self.idle > room:
            key, size = self.left.popitem(last=False)
            over = self.idle - room
            if key[0] < 0 and size > over:  # a part of what a request left is enough
                self.left[key] = size - over
                self.left.move_to_end(key, last=False)
                size = over
            self.idle -= size

    def _pin(self, key: tuple[int, int]) -> None:
        if self.left.pop(key, None) is not None:
            self.idle -= self.size
        self.pins[key] = self.pins.get(key, 0) + 1
