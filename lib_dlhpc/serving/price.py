"""The price of a step of serving: some tokens of prompts, and one token of each sequence that is decoded.

    products   max(FLOP / rate, weights / memory bandwidth), layer by layer: the roofline of costs/roofline.py
    attention  max(FLOP / rate, cache / memory bandwidth), over the tokens before
    exchanges  the allreduces of tensor parallelism, by the cheapest algorithm, or of wide_experts.py

Weights are read once a step, however many tokens it has; the cache is read for each sequence. That is why batching
pays, and until when (Pope et al. 2022, section 2). With a draft model a step verifies some drafts of each sequence: it
reads weights and caches once for all of them, and computes as if they were sequences (speculate.py).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.gemm_tiles import TILES
from lib_dlhpc.costs.groups import collective, network_on
from lib_dlhpc.costs.layer_rates import LOSS, SAMPLES
from lib_dlhpc.costs.roofline import BYTES, Activities, layer_activities, peak_rate, streaming_rate
from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving.kv_cache import AttentionKind
from lib_dlhpc.serving.service import INDEXER, Service, is_attention
from lib_dlhpc.serving.shard import shard_of
from lib_dlhpc.serving.speculate import expected_steps
from lib_dlhpc.serving.wide_experts import OCCUPIED, Exchanges, routed
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.model import Model

FEWEST_ROWS = min(rows for rows, _, _ in TILES)
"""Rows of the smallest tile. A matmul with fewer is split along the sum (split-K), and its weights fill the device."""
STEP_TOKENS = 8192  # of whole prompts in a step; a longer prompt has a step of its own
GRAPH_LAUNCH = 0.5e-6
"""s between kernels of one graph: Gray 2019, "Getting Started with CUDA Graphs", 3.4 us for kernels of 2.9 us."""


class Chunk(NamedTuple):
    """Consecutive tokens of a prompt: how many, after how many that are in the cache."""

    tokens: int
    before: int = 0


class StepTime(NamedTuple):
    """Seconds of a step by what limits it; their sum is the step.

    weights: products that wait for weights. arithmetic: products that wait for FLOP. cache, attention: attention that
    waits for the cache, or for FLOP. activations: other layers. launch: of kernels, and until they run at full rate
    (device.half_work). communication: of the replica's devices.
    """

    weights: float = 0.0
    arithmetic: float = 0.0
    cache: float = 0.0
    attention: float = 0.0
    activations: float = 0.0
    launch: float = 0.0
    communication: float = 0.0

    @property
    def terms(self) -> dict[str, float]:
        """The terms by name."""
        return self._asdict()

    @property
    def total(self) -> float:
        """The seconds of the step."""
        return sum(self)

    @property
    def bound(self) -> str:
        """The largest term."""
        return max(self._fields, key=lambda name: getattr(self, name))

    def __add__(self, other: Any) -> "StepTime":
        """Return the seconds of both steps."""
        return StepTime(*map(add, self, other))

    def times(self, steps: float) -> "StepTime":
        """Return the seconds of a number of such steps."""
        return StepTime(*(steps * each for each in self))


class Prices:
    """The prices of a service's steps on one replica. Raises SpecError if the device lacks the precision.

    draft: those of its draft model, and acceptance that of its drafts. module: of the model's own modules of
    multi-token prediction alone.
    """

    def __init__(self, service: Service, module: bool = False) -> None:
        self.shard, self.drafts = shard_of(service, module), service.drafts
        self.draft: Prices | None = None
        self.acceptance = service.drafting.acceptance
        if service.draft:
            alone = replace(service, model=service.draft, draft=None)
            self.draft = Prices(alone, service.drafts_itself)
        machine, self.serving = service.machine, service.service
        serving = self.serving
        self.precision, self.apart = self.shard.precision, serving.attention == "apart"
        self.device = _served(machine.device, serving.precision, self.precision, serving.graph)
        peak = float(peak_rate(machine.device, self.precision))  # attention is not quantized
        self.attention_rate = peak * (machine.device.attention or machine.device.efficiency)
        self.index_rate = self.attention_rate
        if serving.cache_precision == "fp8":  # of its keys: so is the product
            self.index_rate *= machine.device.peak.get("fp8", peak) / peak
        self.bandwidth = float(streaming_rate(self.device))
        nodes = -(-serving.devices // machine.devices_per_node)
        near = min(serving.devices, machine.devices_per_node)
        self.net = network_on(machine, near, nodes, serving.devices, 1)
        self.exchanges: Exchanges | None = None
        if serving.experts > 1:
            self.exchanges = Exchanges(service, self.shard.model.layers, self.precision)
        self._tokens = lru_cache(maxsize=None)(self._of_tokens)

    def step(self, chunks: Sequence[Chunk] = (), contexts: Sequence[float] = ()) -> StepTime:
        """Return the seconds of a step, those of its drafts included.

        chunks: of prompts. contexts: of each sequence that is decoded, the tokens that its new token sees, itself
        included.
        """
        found = self.verify(chunks, contexts)
        if self.draft:
            found += self.draft.step(chunks, contexts)
            found += self.draft.step((), contexts).times(self.drafts - 1)
        return found

    def verify(self, chunks: Sequence[Chunk], contexts: Sequence[float]) -> StepTime:
        """Return the seconds of the model's own part of a step: one token of each sequence, and its drafts.

        Of two microbatches, the exchanges of each are hidden behind the work of the other; what is left is exposed.
        """
        halved = halves(chunks, contexts, self.serving.microbatches)
        if self.exchanges is None or len(halved) < 2:
            return self._together(chunks, contexts)
        found = sum((self._together(*half) for half in halved), StepTime())
        tokens = sum(chunk.tokens for chunk in chunks) + len(contexts) * (1 + self.drafts)
        slower, half = OCCUPIED if chunks else 1.0, tokens // 2
        found = found._replace(
            arithmetic=slower * found.arithmetic, attention=slower * found.attention
        )
        work = found.total - found.communication
        parts = work / 2, self._experts(half, slower)
        whole = self.exchanges.alternating(*parts, half, bool(chunks))
        return found._replace(communication=whole - work)

    def _together(self, chunks: Sequence[Chunk], contexts: Sequence[float]) -> StepTime:
        """Return the seconds of a step, or of a microbatch, with all its exchanges."""
        new = len(contexts) * (1 + self.drafts)
        tokens = sum(chunk.tokens for chunk in chunks) + new
        if not tokens:
            return StepTime()
        found = self._tokens(tokens, len(chunks) + new, len(chunks) + len(contexts))
        for kind in self.shard.attention:
            for work in (_prompts(kind, chunks), _decoded(kind, contexts, self.drafts)):
                found += self._attention(kind, *work)
        return found

    def kv_cache_bytes(self, tokens: int) -> float:
        """Return the bytes of cache of a sequence of this number of tokens, with room for its drafts."""
        own = self.shard.kv_cache_bytes(tokens + self.drafts)
        return own + (self.draft.kv_cache_bytes(tokens + self.drafts) if self.draft else 0.0)

    def prefill(self, prompt: int, stored: int = 0) -> StepTime:
        """Return the seconds of the step of one prompt, without its `stored` tokens; it ends with the first token."""
        return self.step([Chunk(prompt - stored, stored)])

    def decode(self, batch: int, context: float) -> StepTime:
        """Return the seconds of a step that decodes `batch` sequences, whose new tokens see `context` tokens each."""
        return self.step((), [context] * batch)

    def prompts(self, batch: int, prompt: int, stored: int = 0) -> StepTime:
        """Return the seconds of the steps of `batch` prompts, as many in a step as it has room for."""
        one = Chunk(prompt - stored, stored)
        together = max(1, min(batch, STEP_TOKENS // one.tokens))
        full, rest = divmod(batch, together)
        return self.step([one] * together).times(full) + self.step([one] * rest)

    def answers(self, batch: int, prompt: int, answer: int) -> StepTime:
        """Return the seconds of the steps that decode `batch` sequences to the end of their answers.

        With drafts, or in microbatches, they are all of the mean context.
        """
        if self.draft or self.serving.microbatches > 1:
            return self.decode(batch, prompt + answer / 2).times(self.steps(answer))
        found = self._tokens(batch, batch, batch).times(answer - 1)
        for kind in self.shard.attention:
            seen = prompt + np.arange(1.0, answer)
            seen = batch * (np.minimum(seen, kind.window) if kind.window else seen)
            steps = self._attention(kind, kind.flop * seen, kind.moved * seen)
            found += StepTime(*(float(np.sum(step)) for step in steps))
        return found

    def decodes(self, spans: Sequence[tuple[Sequence[int], int]]) -> NDArray[np.float64]:
        """Return the seconds of each span: of steps in a row that decode the same sequences, without drafts.

        spans: the tokens that the new token of each sequence sees in the first step, and how many steps there are.
        """
        if not spans:
            return np.zeros(0)
        steps = np.array([many for _, many in spans])
        batch = np.array([len(contexts) for contexts, _ in spans])
        first = np.array([sum(contexts) for contexts, _ in spans])
        last = first + batch * (steps - 1)
        each = np.array([self._tokens(many, many, many).total for many in batch.tolist()])
        found = each * steps
        for kind in self.shard.attention:
            begin, middle, end = (
                self._attended(kind, seen) for seen in (first, (first + last) / 2, last)
            )
            # A step is convex in what it sees: if the middle lies on the chord, so does all of the span.
            straight = np.isclose(middle, (begin + end) / 2, rtol=1e-9, atol=0.0)
            straight &= not kind.window
            found += np.where(straight, steps * middle, 0.0)
            for at in np.flatnonzero(~straight).tolist():
                contexts, many = spans[at]
                found[at] += self._attended(kind, _seen(contexts, many, kind.window)).sum()
        return found

    def _attended(self, kind: AttentionKind, seen: NDArray[Any]) -> NDArray[np.float64]:
        """Return the seconds of attention of steps whose new tokens see these tokens, of all sequences."""
        return np.asarray(sum(self._attention(kind, kind.flop * seen, kind.moved * seen)))

    def steps(self, answer: int) -> float:
        """Return the mean steps from the first token of an answer to its end: answer - 1, or fewer with drafts."""
        if not self.draft:
            return answer - 1
        return expected_steps(answer - 1, self.acceptance, self.drafts)

    def flop(self, prompt: int) -> float:
        """Return the FLOP of a whole prompt on one device, those of the draft model included."""
        products = self.shard.model.layer_forward_flop
        body, head = products[: self.shard.head].sum(), products[self.shard.head :].sum()
        seen = sum(
            kind.layers * _prompts(kind, [Chunk(prompt)])[0] for kind in self.shard.attention
        )
        own = float(prompt * body + head + seen)
        return own + (self.draft.flop(prompt) if self.draft else 0.0)

    def _attention(self, kind: AttentionKind, flop: Any, read: Any) -> StepTime:
        """Return the seconds of all layers of a kind, one for each element of flop and read, which are of one layer.

        The lesser of arithmetic and memory is hidden, unless the rates of the kind were measured: those add up.
        """
        device, rate = self.device, self.device.layers.get(kind.key)
        slow = kind.layers * device.slowdown
        if rate is not None:
            return StepTime(attention=slow * flop / rate.rate, cache=slow * read / rate.bandwidth)
        peak = self.index_rate if kind.key == INDEXER else self.attention_rate
        arithmetic, memory = slow * flop / peak, slow * read / self.bandwidth
        bound = arithmetic >= memory  # of numbers and arrays alike
        attention, cache = bound * arithmetic, (1 - bound) * memory
        started = arithmetic + slow * device.half_work * (flop > 0) / peak
        late = (started > memory) * (started - attention - cache)
        return StepTime(attention=attention, cache=cache, launch=late)

    def _of_tokens(self, tokens: int, logits: int, sequences: int) -> StepTime:
        """Return the seconds of all but attention over the cache; logits: tokens that have some."""
        bare, full = self._of_layers(tokens, logits)
        arithmetic, memory, _ = bare
        launch = full.sum(axis=0) - arithmetic - memory  # what no FLOP and no byte takes
        model = self.shard.model
        again = (sequences - 1) * _attention_launch(model, self.device) if self.apart else 0.0
        product = np.array([layer.traits.product for layer in model.layers])
        return StepTime(
            weights=float(memory[product].sum()),
            arithmetic=float(arithmetic.sum()),
            activations=float(memory[~product].sum()),
            launch=float(launch.sum()) + again,
            communication=self._exchanged(tokens, logits),
        )

    def _experts(self, tokens: int, slower: float) -> float:
        """Return the seconds of the layers with experts; slower: how many times as long arithmetic takes."""
        mixtures = [layer.has_experts for layer in self.shard.model.layers]
        bare, full = self._of_layers(tokens, tokens)
        own = full.sum(axis=0) + (slower - 1) * bare[0]
        return float(own[mixtures].sum())

    def _of_layers(self, tokens: int, logits: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the seconds by limit and layer, without the work until a kernel runs at full rate, and with it."""
        shard, rows = self.shard, np.array([tokens, logits])
        model, device = routed(shard.model, tokens, self.serving), self.device
        if tokens < FEWEST_ROWS:
            device = replace(device, multiprocessors=0)
        head = np.arange(len(model.layers)) >= shard.head
        bare, full = (
            _forward(layer_activities(model, each, rows, self.precision), head)
            for each in (replace(device, half_work=0.0), device)
        )
        return bare, full

    def _exchanged(self, tokens: int, of_logits: int) -> float:
        size, total, known = BYTES[self.precision], 0.0, dict[tuple[str, float], float]()
        for goal, elements, logits in self.shard.exchanges:
            key = (goal, float(elements * size * (of_logits if logits else tokens)))
            if key not in known:
                known[key] = float(collective(*key, self.net).total)
            total += known[key]
        if self.exchanges:  # a step without prompts has logits of each of its tokens
            total += sum(self.exchanges.seconds(tokens, prompts=tokens > of_logits))
        return total


def _forward(each: Activities, head: np.ndarray) -> np.ndarray:
    """Return the seconds of forward by limit and layer; row 0 of `each` is of all tokens, row 1 of the head's."""
    rows = (2, len(head))
    return np.array([np.where(head, *np.broadcast_to(limit.forward, rows)[::-1]) for limit in each])


def _served(device: Device, precision: str, computed: str, graph: bool) -> Device:
    """Return the device with the rate of products that weights of this precision have."""
    peak, share = dict(device.peak), device.efficiency
    if precision in ("fp8", "nvfp4", "mxfp4") and precision in peak:
        peak[computed] = peak[precision]
        share = (precision == "fp8" and device.fp8_efficiency) or share
    # No samples are copied, and there is no loss.
    layers = {kind: rate for kind, rate in device.layers.items() if kind not in (SAMPLES, LOSS)}
    found = replace(device, peak=peak, efficiency=share, layers=layers)
    if np.isnan(peak_rate(found, computed)):
        raise SpecError(
            f"service.precision = {precision!r}: {device.name or 'the device'} has no {computed} rate; its rates:"
            f" {', '.join(device.peak)}."
        )
    # The host issues a graph at once, and does not delay the kernels in it.
    return replace(found, launch=min(device.launch, GRAPH_LAUNCH), dispatch=0.0) if graph else found


def _attention_launch(model: Model, device: Device) -> float:
    """Return the seconds of launching all layers of attention for one sequence."""
    each = (layer for layer in model.layers if is_attention(layer.kind))
    rates = device.layers
    return float(
        device.slowdown
        * sum(
            rates[key].launch if (key := layer.traits.rate_key(layer)) in rates else device.launch
            for layer in each
        )
    )


def _prompts(kind: AttentionKind, chunks: Sequence[Chunk]) -> tuple[float, float]:
    """Return FLOP and bytes of attention of one layer for chunks of prompts."""
    flop = sum(
        kind.prompt_flop * pairs(each, kind.window) + kind.expand * each.before for each in chunks
    )
    if kind.kept:
        return flop, kind.stored * sum(pairs(chunk, kind.window) for chunk in chunks)
    if kind.chunk:
        return flop, kind.moved * sum(ceil(chunk.tokens / kind.chunk) for chunk in chunks)
    seen = (
        min(each.before, kind.window) + each.tokens if kind.window else sum(each) for each in chunks
    )
    return flop, kind.stored * sum(seen)


def _decoded(kind: AttentionKind, contexts: Sequence[float], drafts: int) -> tuple[float, float]:
    """Return FLOP and bytes of attention of one layer for new tokens that see `contexts` tokens each.

    Drafts of a sequence see one token more each; its cache is read once for them all.
    """
    seen, read = (1 + drafts) * (sum(contexts) + len(contexts) * drafts / 2), sum(contexts)
    if kind.window:
        every = (context + index for context in contexts for index in range(1 + drafts))
        seen = sum(min(each, kind.window) for each in every)
        read = sum(min(context, kind.window) for context in contexts)
    return kind.flop * seen, kind.moved * (read + len(contexts) * drafts)


def _seen(contexts: Sequence[int], steps: int, window: int) -> NDArray[np.int64]:
    """Return the tokens that all sequences of each step see, each at most `window` of them; 0: all."""
    every = np.add.outer(np.asarray(contexts), np.arange(steps))
    return np.asarray((np.minimum(every, window) if window else every).sum(axis=0))


def halves(
    chunks: Sequence[Chunk], contexts: Sequence[float], many: int
) -> list[tuple[list[Chunk], Sequence[float]]]:
    """Return the microbatches that have work: of two, half of the tokens of each chunk, and of the sequences."""
    if many == 1:
        return [(list(chunks), contexts)]
    cut = [(chunk, chunk.tokens // 2) for chunk in chunks]
    first = [Chunk(half, each.before) for each, half in cut if half]
    second = [Chunk(each.tokens - half, each.before + half) for each, half in cut]
    return [half for half in ((first, contexts[::2]), (second, contexts[1::2])) if any(half)]


def pairs(chunk: Chunk, window: int = 0) -> float:
    """Return the pairs of a token and one that it sees, itself included; a token sees at most `window`, 0: all."""
    first, last = chunk.before + 1, chunk.before + chunk.tokens
    if not window or last <= window:
        return (first + last) * chunk.tokens / 2
    full = last - max(window, first) + 1  # tokens that see a whole window
    growing = chunk.tokens - full
    return full * window + (first + first + growing - 1) * growing / 2
