"""Decoder: a causal language model from its blocks, for what has no family of its own.

One sample is a sequence of `sequence` words. Scalings without weights are left out.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Factor
from lib_dlhpc.layers.base.routing import NO_LIMIT
from lib_dlhpc.layers.gated_experts import CLAMPED
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family
from lib_dlhpc.spec.networks.options import check_options, signature

SQUARED_RELU = "squared_relu"
Norm = Literal["rms_norm", "layer_norm", "layer_norm_without_bias", "layer_norm_without_weights"]


@family
def decoder(
    layers: int,
    hidden: int,
    attention: Mapping[str, Any],
    feed_forward: Mapping[str, Any],
    experts: Mapping[str, Any] | None = None,
    sequence: int = 2048,
    vocabulary: int = 32000,
    positions: int = 0,
    norm: Norm = "rms_norm",
    block: Literal["pre", "parallel", "parallel_one_norm", "sandwich", "post"] = "pre",
    word_norm: bool = False,
    dropout: float = 0.0,
    word_dropout: float = 0.0,
    tied: bool = False,
    logits_bias: bool = False,
    mtp: int = 0,
) -> Builder:
    """A causal language model; the tables' options are those of `heads` or `latent`, `network` and `mixture` here.

    attention: of heads, or latent if it has the option `latent`; of windows, each layer `full_every` sees all.
    experts: a mixture in place of the feed-forward network of layers after the first `dense`. positions: rows of the
    table of learned positions; 0: none. block: norms before attention and feed-forward network (pre); both parallel,
    with a norm each (Black et al. 2022, "GPT-NeoX-20B", section 2.1) or with one; norms before and after (sandwich,
    Gemma team 2024, "Gemma 2"); after each alone (post, OLMo team 2024, "OLMo 2"). word_norm, word_dropout: of the
    embeddings. tied: the last matrix is that of the embedding. mtp: modules of multi-token prediction, each of which
    predicts one more word (DeepSeek-AI 2024, "DeepSeek-V3", section 2.2); priced, not trained.
    """
    net = Builder(sequence)
    net.embedding(vocabulary, hidden, keep=not (positions or word_dropout), name="words")
    if positions:
        net.position_embedding(positions, keep=not word_dropout, name="positions")
    if word_norm:
        _norm(net, norm, name="words_norm")
    if word_dropout:
        net.dropout(word_dropout, keep=True)
    tables = attention, feed_forward, experts
    for number in range(1, layers + 1):
        with net.block(f"layer{number}"):
            _block(net, block, norm, dropout, *_parts(number, *tables))
    state = net.last
    _logits(net, norm, vocabulary, logits_bias, "words" if tied else "")
    for number in range(1, mtp + 1):
        with net.block(f"mtp{number}"):
            _further(net, state, vocabulary, norm)
        with net.block(f"layer{layers + number}"):
            state = _block(net, block, norm, dropout, *_parts(layers + number, *tables))
        with net.block(f"mtp{number}"):
            _logits(net, norm, vocabulary, logits_bias, "words" if tied else "logits")
    return net


def _parts(
    number: int,
    attention: Mapping[str, Any],
    feed_forward: Mapping[str, Any],
    experts: Mapping[str, Any] | None,
) -> tuple["_Part", "_Part"]:
    """Return attention and feed-forward network of a layer."""
    see, mix = dict(attention), dict(experts or {})
    every, dense = see.pop("full_every", 0), mix.pop("dense", 0)
    if every and number % every == 0:
        see["window"] = 0
    attend = _Part(latent if "latent" in see else heads, see, "attention")
    if experts and number > dense:
        return attend, _Part(mixture, mix, "experts")
    return attend, _Part(network, feed_forward, "feed_forward")


def _further(net: Builder, state: str, vocabulary: int, norm: str) -> None:
    """Append the input of a module that predicts a further word: a matmul of the state, and of the next word's row.

    One matrix of both, one above the other (DeepSeek-AI 2024, equation 21), is the sum of two matmuls.
    """
    hidden = net.shape(state)[-1]
    net.embedding(vocabulary, hidden, keep=True, tied="words", name="words", after="input")
    _norm(net, norm)
    words = net.dense(hidden, bias=False, keep=False, name="from_words")
    _norm(net, norm, after=state)
    states = net.dense(hidden, bias=False, keep=False, name="from_state")
    net.add((words, states), name="joined")


def heads(
    _net: Builder,
    heads: int,
    kv_heads: int = 0,
    head_size: int = 0,
    rotary_base: int = 0,
    alibi: bool = False,
    window: int = 0,
    dropout: float = 0.0,
    normed: bool = False,
    qkv_bias: bool = False,
    output_bias: bool = False,
    width_normed: bool = False,
    sinks: bool = False,
) -> None:
    """Append attention (layers/attention.py) between two products; head_size = 0: hidden / heads.

    normed: queries and keys are normalized, head by head (layers/head_norm.py); width_normed: over all heads
    (layers/width_norm.py). sinks: a learned logit of each head (layers/sinks.py).
    """
    hidden, kv_heads = _net.shape()[-1], kv_heads or heads
    if hidden % heads and not head_size:
        raise SpecError(
            f"attention: heads = {heads} must divide hidden = {hidden}; or give head_size."
        )
    size = head_size or hidden // heads
    _net.dense((heads + 2 * kv_heads) * size, bias=qkv_bias, name="qkv")
    if normed:
        _net.head_norm(heads, kv_heads, name="qk_norm")
    if width_normed:
        _net.width_norm(heads, kv_heads, name="qk_width_norm")
    if sinks:
        _net.sinks(heads, kv_heads, name="sinks")
    _net.attention(heads, True, dropout, kv_heads, window, rotary_base, alibi, name="attention")
    _net.dense(hidden, bias=output_bias, keep=False, name="projection")


def latent(
    _net: Builder,
    heads: int,
    latent: int,
    plain: int,
    rotated: int,
    values: int,
    queries: int = 0,
    chosen: int = 0,
    index_heads: int = 0,
    index_size: int = 0,
) -> None:
    """Append multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1 and appendix C).

    latent: size of the vector of keys and values; queries: of that of queries; 0: none. A head has `plain` and
    `rotated` features of queries and keys, and `values` of values. Both vectors are normalized. chosen: positions that
    a query attends to, by an indexer of `index_heads` heads of `index_size` features (layers/indexer.py); 0: all.
    """
    hidden, source = _net.shape()[-1], _net.last
    index = {"queries": queries, "index_heads": index_heads, "index_size": index_size}
    for name, value in index.items() if chosen else ():
        if not value:
            raise SpecError(
                f"attention: {name} = 0: an indexer needs it; legal with chosen = {chosen}: above 0."
            )
    few: tuple[str, ...] = ()
    if queries:
        _net.dense(queries, bias=False, name="query_down")
        asked = _net.rms_norm(name="query_norm")
    if chosen:
        few = (_chosen(_net, asked, source, chosen, index_heads, index_size),)
        _net.last = asked
    asked = _net.dense(heads * (plain + rotated), bias=False, name="query")
    turned = _net.dense(rotated, bias=False, name="rotated_key", after=source)
    _net.dense(latent, bias=False, name="latent", after=source)
    _net.rms_norm(name="latent_norm")
    both = _net.dense(heads * (plain + values), bias=False, name="key_value")
    if chosen:
        inputs = asked, both, turned, *few
        _net.sparse_latent_attention(inputs, heads, values, latent, name="attention")
    else:
        _net.latent_attention((asked, both, turned), heads, values, name="attention")
    _net.dense(hidden, bias=False, keep=False, name="projection")


def _chosen(net: Builder, asked: str, source: str, chosen: int, heads: int, size: int) -> str:
    """Append the indexer of sparse attention: its queries from those of attention, keys and weights from the input."""
    queries = net.dense(heads * size, bias=False, name="index_query", after=asked)
    net.dense(size, bias=False, name="index_key", after=source)
    keys = net.layer_norm(name="index_norm")
    weights = net.dense(heads, bias=False, name="index_weight", after=source)
    return str(net.indexer((queries, keys, weights), heads, chosen, name="index"))


def network(
    _net: Builder,
    features: int,
    activation: Literal["silu", "gelu", "relu"] = "silu",
    gated: bool = True,
    bias: bool = False,
) -> None:
    """Append a feed-forward network; gated: silu or gelu of one product times another (Shazeer 2020, eq. 6)."""
    hidden, source = _net.shape(), _net.last
    if gated:
        gate = _net.dense(features, bias=bias, name="gate")
        up = _net.dense(features, bias=bias, name="up", after=source)
        _net.glu((gate, up), activation)
    else:
        _net.dense(features, bias=bias, name="expand")
        getattr(_net, activation)()
    name = "down" if gated else "contract"
    _net.dense(hidden[-1], bias=bias, keep=False, name=name)


def mixture(
    _net: Builder,
    experts: int,
    chosen: int,
    features: int,
    shared: int = 0,
    shared_gate: bool = False,
    capacity: Factor = NO_LIMIT,
    activation: Literal["silu", "gelu", "clamped", "squared_relu"] = "silu",
    groups: int = 1,
    chosen_groups: int = 0,
    bias: bool = False,
) -> None:
    """Append gated experts, of which each word has `chosen`, and a network of `shared` features that all words take.

    activation: squared_relu is that of networks without gates and biases. groups: of experts, of which a word has
    `chosen_groups`; 0: all (DeepSeek-AI 2024, "DeepSeek-V3", section 2.1.2).

    shared_gate: that network's output is scaled by the sigmoid of one more product (Qwen team 2024, "Qwen1.5-MoE").
    bias: of the experts and of the router.
    """
    if shared and activation == CLAMPED:
        raise SpecError(
            "experts: activation = 'clamped' of a shared network is not modeled; legal: silu, gelu."
        )
    if bias and activation == SQUARED_RELU:
        raise SpecError(f"experts: bias = true: legal with activation = {SQUARED_RELU!r}: false.")
    words = _net.last
    scores = _net.dense(experts, bias=bias, name="router")
    numbers = (words, scores), experts, chosen, features, capacity, groups, chosen_groups
    if activation == SQUARED_RELU:
        routed = _net.squared_relu_experts(*numbers, name="experts")
    else:
        routed = _net.gated_experts(*numbers, activation, bias, name="experts")
    if not shared:
        return
    own = _shared(_net, words, shared, activation)
    if shared_gate:
        _net.dense(1, bias=False, name="shared_scale", after=words)
        factor = _net.sigmoid(name="shared_sigmoid")
        own = _net.multiply((own, factor), name="shared_scaled")
    _net.add((own, routed), name="mixture")


def _shared(net: Builder, words: str, features: int, activation: str) -> str:
    """Append the network that all words take; a squared ReLU as a ReLU, which moves as much."""
    gate = net.dense(features, bias=False, name="shared_gate", after=words)
    if activation == SQUARED_RELU:
        net.relu(name="shared_relu")
    else:
        up = net.dense(features, bias=False, name="shared_up", after=words)
        net.glu((gate, up), activation, name="shared_glu")
    return str(net.dense(net.shape(words)[-1], bias=False, keep=False, name="shared_down"))


class _Part(NamedTuple):
    """A part of a block: the function that appends it, its options, and the name of their table."""

    append: Callable[..., None]
    options: Mapping[str, Any]
    table: str

    def to(self, net: Builder, dropout: float) -> str:
        """Append it, and its dropout."""
        where = f"{self.table} of model family 'decoder'"
        self.append(net, **check_options(signature(self.append), self.options, where))
        return str(net.dropout(dropout)) if dropout else net.last


def _block(net: Builder, block: str, norm: str, dropout: float, attend: _Part, feed: _Part) -> str:
    """Append a block: attention and feed-forward network with their norms and residuals; return its last layer."""
    source = net.last
    if block.startswith("parallel"):
        normal = _norm(net, norm)
        attended = attend.to(net, dropout)
        net.last = normal if block == "parallel_one_norm" else _norm(net, norm, after=source)
        return str(net.add((attended, feed.to(net, dropout), source)))
    for part in (attend, feed):
        if block != "post":
            _norm(net, norm)
        part.to(net, dropout)
        if block != "pre":
            _norm(net, norm)
        source = net.add((net.last, source))
    return source


def _logits(net: Builder, norm: str, vocabulary: int, bias: bool, tied: str) -> None:
    if bias and tied == "logits":
        raise SpecError(
            "mtp: modules share the last matrix, not its bias; legal: logits_bias = false, or tied."
        )
    _norm(net, norm)
    net.dense(vocabulary, bias=bias, fp32=True, tied=tied, name="logits")


def _norm(net: Builder, norm: str, **where: Any) -> str:
    if norm == "rms_norm":
        return str(net.rms_norm(**where))
    scale = norm != "layer_norm_without_weights"
    return str(net.layer_norm(bias=norm == "layer_norm", scale=scale, **where))
