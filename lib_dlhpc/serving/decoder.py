"""A decoder in numpy: prompts and single tokens of many sequences in one step, with a cache of keys and values.

Tokens of all sequences stand in one row: layers that treat each token alone, which are all but attention, do not see
where a sequence ends (Yu et al. 2022, "Orca", section 3, selective batching). Attention runs sequence by sequence,
over what the cache has of it. The layers, and their weights for a seed, are those of training.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers import Context, Saved
from lib_dlhpc.layers.base.saved import Array, Tensors
from lib_dlhpc.layers.base.slices import start
from lib_dlhpc.serving.service import is_attention
from lib_dlhpc.spec.model import Layer, Model

KINDS = (
    *("embedding", "position_embedding", "rms_norm", "layer_norm", "head_norm", "width_norm"),
    *("dense", "attention", "fused_attention", "add", "glu", "gelu", "relu", "silu", "dropout"),
)


class Decoder:
    """A language model that generates text, with the cache of each sequence by its name.

    dtype: of weights, cache and arithmetic. longest: tokens of a sequence. Raises SpecError for a model with layers
    that no decoder has, such as experts.
    """

    def __init__(
        self, model: Model, seed: int = 0, dtype: Any = np.float32, longest: int = 2048
    ) -> None:
        for layer in model.layers:
            if layer.kind not in KINDS:
                raise SpecError(
                    f"{layer.name}: layers of kind {layer.kind!r} are not decoded; legal: {', '.join(KINDS)}."
                )
        self.model, self.dtype, self.longest = model, np.dtype(dtype), longest
        self.layers: list[Any] = [layer.traits(layer) for layer in model.layers]
        self.weights: list[Tensors] = []
        for at in range(len(self.layers)):
            self.weights.append(self._start(at, seed))
        self.head = max(index for index, layer in enumerate(model.layers) if layer.kind == "dense")
        self.context = Context(training=False)
        self.cache: dict[Hashable, dict[int, Array]] = {}
        self.held: dict[Hashable, int] = {}
        # Keys and values of tokens that later prompts may repeat.
        self.blocks: dict[Hashable, dict[int, Array]] = {}
        for layer, each in zip(model.layers, self.layers, strict=True):
            if is_attention(layer.kind):
                each.positions = np.arange(longest)

    def _start(self, at: int, seed: int) -> Tensors:
        """Return the initial weights of a layer, as a training run with this seed has them."""
        layer, noun = self.layers[at], self.model.layers[at]
        shapes = getattr(layer, "shapes", {})
        weights = {name: np.zeros(shape, self.dtype) for name, shape in shapes.items()}
        if weights:
            start(layer, noun, weights, np.random.default_rng([seed, at]))
        if noun.attributes.get("tied"):
            owner = next(
                n
                for n, layer in enumerate(self.model.layers)
                if layer.name == noun.attributes["tied"]
            )
            weights["weight"] = self.weights[owner]["weight"]
        return weights

    def step(
        self, tokens: Sequence[tuple[Hashable, Sequence[int]]], every: bool = False
    ) -> NDArray[Any]:
        """Append tokens to sequences; return the logits after the last one of each, (sequences, vocabulary).

        tokens: the name of each sequence and its next tokens: a prompt, a part of it, or the newest token.
        every: logits after every token, (tokens, vocabulary). Raises SpecError for a sequence longer than `longest`.
        """
        spans = self._spans(tokens)
        row = np.concatenate([np.asarray(each, np.int64) for _, each in tokens])[None]
        outputs: dict[str, Array] = {"input": row}
        last = np.cumsum([len(each) for _, each in tokens]) - 1
        for index, (noun, layer) in enumerate(zip(self.model.layers, self.layers, strict=True)):
            inputs = [outputs[name] for name in noun.inputs]
            if index == self.head and not every:
                inputs = [each[:, last] for each in inputs]
            outputs[noun.name] = self._forward(index, noun, layer, spans, inputs)
        for name, each in tokens:
            self.held[name] += len(each)
        return outputs[self.model.layers[-1].name][0]

    def keep(self, name: Hashable, tokens: int) -> None:
        """Forget all but the first tokens of a sequence, such as drafts that were rejected."""
        self.held[name] = min(self.held.get(name, 0), tokens)

    def store(self, block: Hashable, name: Hashable, first: int, stop: int) -> None:
        """Store the keys and values of tokens first to stop of a sequence, as a block of that name."""
        self.blocks[block] = {at: c[:, first:stop].copy() for at, c in self.cache[name].items()}

    def reuse(self, name: Hashable, blocks: Sequence[Hashable]) -> None:
        """Begin a sequence with the tokens of stored blocks, one after the other; they must be its first tokens."""
        self.cache[name], self.held[name] = {}, 0
        for block in blocks:
            first = self.held[name]
            for at, stored in self.blocks[block].items():
                cache = self._cache(name, at, stored.shape[-1])
                cache[:, first : first + stored.shape[1]] = stored
                self.held[name] = first + stored.shape[1]

    def free(self, name: Hashable) -> None:
        """Release the cache of a sequence."""
        del self.cache[name], self.held[name]

    def _spans(
        self, tokens: Sequence[tuple[Hashable, Sequence[int]]]
    ) -> list[tuple[Hashable, slice, int]]:
        """Return where the tokens of each sequence are in the row, and how many come before; new ones get a cache."""
        found, first = [], 0
        for name, each in tokens:
            before = self.held.setdefault(name, 0)
            self.cache.setdefault(name, {})
            if not 0 < before + len(each) <= self.longest or not len(each):
                raise SpecError(
                    f"A sequence of {before + len(each)} tokens: legal: 1 to {self.longest}, at least one per step."
                )
            found.append((name, slice(first, first + len(each)), before))
            first += len(each)
        return found

    def _forward(self, at: int, noun: Layer, layer: Any, spans: Any, inputs: list[Array]) -> Array:
        saved, weights = Saved(self.context), self.weights[at]
        if is_attention(noun.kind):
            return self._attend(at, layer, saved, spans, inputs[0])
        if noun.kind == "position_embedding":
            where = np.concatenate([before + np.arange(s.stop - s.start) for _, s, before in spans])
            return np.asarray(inputs[0] + weights["weight"][where])
        if noun.kind == "dropout":
            return inputs[0]
        return np.asarray(layer.forward(weights, saved, *inputs))

    def _attend(self, at: int, layer: Any, saved: Saved, spans: Any, x: Array) -> Array:
        """Return attention of each sequence's new tokens over its cache, which then has them too."""
        y = np.empty((*x.shape[:2], layer.features), x.dtype)
        for name, span, before in spans:
            after = before + span.stop - span.start
            layer.own = np.arange(before, after)
            turned = layer.turned(saved, np.ascontiguousarray(x[:, span]))
            cache = self._cache(name, at, turned.shape[-1] - layer.features)
            cache[:, before:after] = turned[..., layer.features :]
            q = layer.queries_of(turned[..., : layer.features])
            k, v = layer.keys_of(cache[:, :after])
            p = layer.scores(saved, q, k, np.arange(after))
            p -= p.max(axis=-1, keepdims=True)
            np.exp(p, out=p)
            p /= p.sum(axis=-1, keepdims=True)
            layer.multiply(saved, p, v, layer.queries_of(y[:, span]))
        return y

    def _cache(self, name: Hashable, at: int, features: int) -> Array:
        held = self.cache[name]
        if at not in held:
            held[at] = np.zeros((1, self.longest, features), self.dtype)
        return held[at]


def decode(
    model: Model,
    prompts: Sequence[Sequence[int]],
    answer: int,
    seed: int = 0,
    dtype: Any = np.float32,
) -> list[list[int]]:
    """Return the `answer` most likely next tokens of each prompt, all decoded in one batch; weights of a seed.

    Raises SpecError for a model that no decoder has.
    """
    longest = max(map(len, prompts)) + answer
    decoder = Decoder(model, seed, dtype, longest)
    found: list[list[int]] = [[] for _ in prompts]
    new: list[Sequence[int]] = list(prompts)
    for _ in range(answer):
        logits = decoder.step(list(enumerate(new)))
        new = [[int(np.argmax(logit))] for logit in logits]
        for own, token in zip(found, new, strict=True):
            own.extend(token)
    return found
