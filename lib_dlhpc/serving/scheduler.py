"""The scheduler of a replica: which prompts and which sequences are in its next step.

Continuous batching (Yu et al. 2022, "Orca", section 3): a request joins the batch as soon as there is room, and
leaves it with its last token. Static batching: a batch is admitted when the one before has ended.

    admit      in the order of arrival, while the batch and the cache have room for the prompt
    prefill    whole prompts, in steps of their own; or chunks of them, in the steps that decode (Agrawal et al. 2024,
               "Sarathi-Serve", section 4)
    decode     one token of each sequence that has its first
    reuse      the blocks of a prompt's beginning that are still stored (prefix.py)
    hand over  a prompt's cache to a replica that decodes, where this one only reads prompts (pools.py)
    preempt    when the cache is full: the sequence admitted last returns to the queue, and is prefilled again later
               with the tokens that it has made (Kwon et al. 2023, "vLLM", section 4.5)

The simulation and the real decoder both run it; they differ in where the time of a step comes from.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving.prefix import PrefixCache
from lib_dlhpc.serving.price import STEP_TOKENS, Chunk
from lib_dlhpc.serving.service import Serving


@dataclass(eq=False)
class Request:
    """A request, its progress, and its times in s; made: tokens of the answer, computed: tokens in the cache.

    prefix: which text its first `shared` tokens are; -1: its own. reused: tokens that were stored when it was first
    admitted. blocks: of its prefix, that it has pinned. moved: s from its first token until its cache has been sent.
    """

    number: int
    arrival: float
    prompt: int
    answer: int
    made: int = 0
    computed: int = 0
    first: float = -1.0
    end: float = -1.0
    preemptions: int = 0
    prefix: int = -1
    shared: int = 0
    reused: int = 0
    blocks: int = 0
    moved: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens of the prompt and of the answer so far: those in the cache after its next step."""
        return self.prompt + self.made

    @property
    def prefilled(self) -> bool:
        """Whether all its tokens but the newest are in the cache."""
        return self.made > 0 and self.computed >= self.tokens - 1


@dataclass(frozen=True)
class Step:
    """The work of a step: chunks of prompts, and sequences that are decoded."""

    chunks: tuple[tuple[Request, Chunk], ...]
    decoded: tuple[Request, ...]
    cache: float  # bytes in use on a device, when it ends


@dataclass
class Scheduler:
    """Queue and batch of one replica. cached: bytes of a sequence, from its tokens; room: bytes of all.

    prefixes: its stored blocks. hands_over: it only reads prompts; `leaving` have their first token, and their caches
    stay until they have been sent.
    """

    serving: Serving
    cached: Callable[[int], float]
    room: float
    # Tokens that a step adds to a sequence; random with speculative decoding.
    advance: Callable[[], int] = lambda: 1
    queue: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)  # in the order of admission
    prefixes: PrefixCache = field(default_factory=PrefixCache)
    hands_over: bool = False
    leaving: list[Request] = field(default_factory=list)

    def add(self, request: Request) -> None:
        """Append a request to the queue; raise SpecError if it does not fit the cache alone."""
        if self.cached(request.prompt + request.answer - 1) > self.room:
            raise SpecError(
                f"A request of {request.prompt} + {request.answer} tokens needs"
                f" {self.cached(request.prompt + request.answer - 1) / 1e9:.3g} GB of cache per device, and"
                f" {max(self.room, 0) / 1e9:.3g} GB are left beside the weights; legal: shorter requests, more"
                " service.devices, or fewer bytes per number."
            )
        self.queue.append(request)

    def sent(self, request: Request) -> None:
        """Forget a request whose cache has been sent."""
        self.leaving.remove(request)

    @property
    def load(self) -> int:
        """Requests in the queue and in the batch."""
        return len(self.queue) + len(self.running)

    def next_step(self) -> Step | None:
        """Return the next step, or None without any request."""
        self._admit()
        if not self.running:
            return None
        waiting = [each for each in self.running if not each.prefilled]
        if waiting and not self.serving.chunk:
            return self._step(self._prompts(waiting), ())
        self._preempt()
        waiting = [each for each in self.running if not each.prefilled]
        decoded = tuple(each for each in self.running if each.prefilled)
        return self._step(self._chunks(waiting), decoded)

    def done(self, step: Step, now: float) -> None:
        """Record that a step ended at `now`."""
        for request, chunk in step.chunks:
            request.computed += chunk.tokens
            if request.computed == request.tokens:
                if request.prefix >= 0:
                    request.blocks = self.prefixes.add(
                        request.prefix, request.shared, request.blocks
                    )
                self._token(request, now)
        for request in step.decoded:
            made = min(self.advance(), request.answer - request.made)
            request.computed += made
            for _ in range(made):
                self._token(request, now)

    def _token(self, request: Request, now: float) -> None:
        request.made += 1
        if request.first < 0:
            request.first = now
        if request.made == request.answer:
            request.end = now
            self.running.remove(request)
            self._release(request, self._own(request))
        elif self.hands_over:
            self.running.remove(request)
            self.leaving.append(request)

    def _admit(self) -> None:
        if self.serving.batching == "static" and self.running:
            return
        own = self._used() - self.prefixes.pinned
        while self.queue and len(self.running) < self.serving.batch:
            request = self.queue[0]
            if request.prefix >= 0:
                request.blocks = self.prefixes.find(request.prefix, request.shared)
            own += self._own(request)
            if own + self.prefixes.pinned > self.room:
                self._release(request)
                break
            stored = request.blocks * self.prefixes.block
            if not request.preemptions:
                request.reused = stored
            request.computed = max(request.computed, stored)
            self.running.append(self.queue.popleft())

    def _preempt(self) -> None:
        while self._used() > self.room:
            last = self.running.pop()
            last.computed, last.preemptions = 0, last.preemptions + 1
            self._release(last)
            self.queue.appendleft(last)

    def _release(self, request: Request, own: float = 0.0) -> None:
        """Unpin what a request has of its prefix; leave its own bytes to be evicted."""
        self.prefixes.release(request.prefix, request.blocks, (request.number, own))
        request.blocks = 0

    def _prompts(self, waiting: list[Request]) -> tuple[tuple[Request, Chunk], ...]:
        """Return whole prompts, the first one and as many more as a step has room for."""
        found, left = list[tuple[Request, Chunk]](), STEP_TOKENS
        for request in waiting:
            chunk = Chunk(request.tokens - request.computed, request.computed)
            left -= chunk.tokens
            if found and left < 0:
                break
            found.append((request, chunk))
        return tuple(found)

    def _chunks(self, waiting: list[Request]) -> tuple[tuple[Request, Chunk], ...]:
        found, left = [], self.serving.chunk
        for request in waiting:
            if size := min(left, request.tokens - request.computed):
                found.append((request, Chunk(size, request.computed)))
                left -= size
        return tuple(found)

    def _step(
        self, chunks: tuple[tuple[Request, Chunk], ...], decoded: tuple[Request, ...]
    ) -> Step:
        used = self._used()
        self.prefixes.shrink(self.room - used)
        return Step(chunks, decoded, used)

    def _used(self) -> float:
        """Return the bytes that are not to be evicted."""
        held = sum(self._own(each) for each in (*self.running, *self.leaving))
        return held + self.prefixes.pinned

    def _own(self, request: Request) -> float:
        """Return the bytes of a request beside the blocks that it has pinned."""
        return self.cached(request.tokens) - request.blocks * self.prefixes.size
