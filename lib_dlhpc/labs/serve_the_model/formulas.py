"""A learner's bytes of cache and seconds of a step, beside the arrays of the real decoder and the library's prices.

cache_finding(cache, task)     bytes that the decoder in numpy allocates, and those of the learner's model
step_findings(step, task)      a prompt, decoding, both in one step, several devices
A wrong value is matched with those that classic mistakes give.
"""

from collections.abc import Callable, Sequence
from typing import Any

from lib_dlhpc.labs.findings import Finding
from lib_dlhpc.labs.formula_cases import Case, compared
from lib_dlhpc.labs.serve_the_model.tasks import (
    Task,
    allreduce_of,
    counted,
    exchanged,
    gpu_of,
    prices_of,
    size_of,
)
from lib_dlhpc.sentences import sentences
from lib_dlhpc.serving import Chunk, Decoder
from lib_dlhpc.spec.networks import build

say = sentences(__file__)

NEAR = 0.05  # of the library's price
CACHE = "Cache: the bytes of keys and values, as the decoder holds them"
PREFILL = "Prefill: the step of a prompt"
DECODE = "Decode: a step with one token of each sequence"
BOTH = "Both: a step with a prompt and with sequences"
SHARDS = "Devices: shards, and the allreduces between them"
SMALL = ((5, 64, 4, 4, 8), (3, 96, 8, 2, 4), (1, 128, 4, 1, 8))  # layers, hidden, heads, kv, bytes
Step = Callable[..., Any]


def held(layers: int, hidden: int, heads: int, kv_heads: int, wide: int, tokens: int) -> float:
    """Return the bytes of the real decoder's cache of a sequence: its arrays have room for `longest` tokens."""
    size = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads}
    size |= {"feed_forward": 2 * hidden, "vocabulary": 32, "sequence": tokens}
    decoder = Decoder(build("llama", size), dtype=f"f{wide}", longest=tokens)
    decoder.step([("text", [0] * tokens)])
    return float(sum(each.nbytes for each in decoder.cache["text"].values()))


def cache_finding(cache: Callable[..., Any], task: Task) -> Finding:
    """Return whether `cache(size, tokens)` is what the decoder holds, and the library counts."""
    cases = []
    for (layers, hidden, heads, kv, wide), tokens in zip(SMALL, (5, 7, 3), strict=True):
        size = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv}
        size |= {"head": hidden // heads, "weights": 1, "bytes": wide}
        right = held(layers, hidden, heads, kv, wide, tokens)
        about = f"The decoder in numpy, {layers} layers, {heads} heads, {kv} of keys and values"
        cases.append(_cached(about, size, tokens, right))
    size = size_of(task)
    right = prices_of(task, 1).kv_cache_bytes(1000)
    return compared(
        CACHE, cache, [*cases, _cached(task.model, size, 1000, right)], say.cache_done, 1e-9, "B"
    )


def _cached(about: str, size: dict[str, int], tokens: int, right: float) -> Case:
    slips = [
        (say.one_of_two, right / 2),
        (say.all_heads, right * size["heads"] / size["kv_heads"]),
        (say.one_layer, right / size["layers"]),
        (say.elements, right / size["bytes"]),
        (say.elements, right / size["bytes"] * 2),
        (say.one_number, right / size["head"]),
        (say.hidden_per_head, right * size["heads"]),
        (say.one_token, right / tokens),
    ]
    return Case(
        about, (size, tokens), right, [each for each in slips if each[1] != right], say.about_cache
    )


def price(task: Task, devices: int, prompt: int, contexts: Sequence[int]) -> float:
    """Return the seconds of a step by the library: its products, its cache and its messages."""
    found = prices_of(task, devices).step([Chunk(prompt)] if prompt else (), contexts)
    return found.weights + found.arithmetic + found.cache + found.communication


class _Terms:
    """The terms of a step as a learner would write them, for what mistakes give: seconds."""

    def __init__(self, task: Task, devices: int, prompt: int, contexts: Sequence[int]) -> None:
        size, gpu = size_of(task), gpu_of(task)
        self.prompt, self.many, self.devices = prompt, len(contexts), devices
        self.flop = 2 * size["weights"] / devices / gpu["flops"]  # of a token
        self.read = size["weights"] * size["bytes"] / devices / gpu["bandwidth"]
        self.kv = prices_of(task, devices).kv_cache_bytes(1) / gpu["bandwidth"]  # of a token
        self.cached, self.longest = self.kv * sum(contexts), max(contexts, default=0)
        self.wide = size["bytes"] * size["hidden"]  # B of a token
        self.layers, self.task = size["layers"], task
        self.shared = size["heads"] / size["kv_heads"]

    @property
    def tokens(self) -> int:
        """Tokens of the step."""
        return self.prompt + self.many

    def products(self, tokens: int) -> float:
        """Return the roofline of all products."""
        return max(self.flop * tokens, self.read)

    def messages(self, times: float = 2, tokens: int = 0, wide: float = 0) -> float:
        """Return the seconds of the allreduces: `times` a layer."""
        size = float((wide or self.wide) * (tokens or self.tokens))
        return times * self.layers * exchanged(self.task, size, self.devices)


def step_findings(step: Step, task: Task) -> list[Finding]:
    """Return whether `step(size, gpu, devices, prompt, contexts, allreduce)` is the library's price."""
    words = f"Within {NEAR:.0%} of the library's price."
    prompts: list[tuple[int, int, list[int]]] = [(1, n, []) for n in (16, 700, 1400)]
    decodes = [(1, 0, [900]), (1, 0, [700] * 24), (1, 0, [200, 300, 3000] * 8), (1, 0, [50] * 600)]
    both = [(1, 16, [900] * 24), (1, 512, [700] * 16)]
    shards = [(devices, 0, [700] * 16) for devices in (8, 2, 4)] + [(4, 600, [])]
    every = ((PREFILL, prompts), (DECODE, decodes), (BOTH, both), (SHARDS, shards))
    return [
        compared(law, step, [_case(task, *each) for each in works], words, NEAR, "s")
        for law, works in every
    ]


def _case(task: Task, devices: int, prompt: int, contexts: list[int]) -> Case:
    one = _Terms(task, devices, prompt, contexts)
    slips = _products(one)
    if one.many:
        slips += _sequences(one)
    if one.many and prompt:
        slips += _together(one)
    if devices > 1:
        slips += _shards(one)
    parts = [f"a prompt of {prompt}"] * bool(prompt) + [counted(one.many, "sequence")] * bool(
        one.many
    )
    where = f" on {devices} devices" if devices > 1 else ""
    about = f"{' and '.join(parts)}{where}".capitalize()
    given = (size_of(task), gpu_of(task), devices, prompt, contexts, allreduce_of(task))
    parts = [
        "the matmuls",
        *["reading the caches"] * bool(one.many),
        *["allreduces"] * (devices > 1),
    ]
    hint = f"Here, the time goes into {' and '.join(parts)}."
    return Case(about, given, price(task, devices, prompt, contexts), slips, hint)


def _tokens(one: _Terms) -> str:
    """Return what is in the products of a step."""
    if one.prompt and one.many:
        return say.one_matmul
    return (
        f"A {'batch' if one.many else 'prompt'} has many tokens, and each of them takes arithmetic."
    )


def _products(one: _Terms) -> list[tuple[str, float]]:
    """Return what mistakes with the roofline give."""
    rest, arithmetic = one.cached + one.messages(), one.flop * one.tokens
    return [
        (say.no_weights, arithmetic + rest),
        (f"Matmuls also take arithmetic, at the rate `flops`. {_tokens(one)}", one.read + rest),
        (say.not_overlapped, arithmetic + one.read + rest),
        (say.one_flop, max(arithmetic / 2, one.read) + rest),
        (say.one_byte, max(arithmetic, one.read / 2) + rest),
        (say.per_token, one.read * one.tokens + rest),
    ]


def _sequences(one: _Terms) -> list[tuple[str, float]]:
    """Return what mistakes with the cache give."""
    rest = one.products(one.tokens) + one.messages()
    arithmetic = one.flop * one.tokens
    overlapped = max(arithmetic, one.read + one.cached) + one.messages()
    return [
        (say.cache_overlapped, overlapped),
        (say.no_cache, rest),
        (say.no_reading, arithmetic + one.messages()),
        (say.one_cache, rest + one.cached / one.many),
        (say.padded, rest + one.kv * one.many * one.longest),
        (say.all_heads_read, rest + one.cached * one.shared),
    ]


def _together(one: _Terms) -> list[tuple[str, float]]:
    """Return what mistakes with a prompt beside sequences give."""
    rest = one.cached + one.messages()
    apart = one.products(one.prompt) + one.products(one.many)
    return [(say.weights_twice, apart + rest), (_tokens(one), one.products(one.many) + rest)]


def _shards(one: _Terms) -> list[tuple[str, float]]:
    """Return what mistakes with several devices give."""
    products, kv, exchanges = one.products(one.tokens), one.cached, one.messages()
    where = "after attention, and after the feed-forward layers"
    times, own = f"How many times per layer? Once {where}.", products + kv
    return [
        (f"What do devices exchange {where}?", own),
        (times, own + one.messages(1)),
        (times, own + one.messages(4)),
        (say.one_token_sent, own + one.messages(tokens=1)),
        (say.sent_elements, own + one.messages(wide=one.wide / 2)),
        (say.sent_shard, own + one.messages(wide=one.wide / one.devices)),
        (say.one_layer_sends, own + exchanges / one.layers),
        (say.weights_whole, one.devices * products + kv + exchanges),
        (say.cache_whole, products + one.devices * kv + exchanges),
        (say.nothing_sharded, one.devices * own + exchanges),
    ]
