"""Decoders after GPT: Llama and its relatives, PaLM, OPT, BLOOM and MPT.

One sample is a sequence of `sequence` words; all attention is causal. Scalings without weights are left out (of
embeddings in Gemma, of positions for longer sequences in Llama 3.1).
"""

from typing import Literal

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family


@family
def llama(
    layers: int,
    hidden: int,
    heads: int,
    feed_forward: int,
    kv_heads: int = 0,
    head_size: int = 0,
    sequence: int = 4096,
    vocabulary: int = 32000,
    activation: Literal["silu", "gelu"] = "silu",
    rotary_base: int = 10000,
    window: int = 0,
    qkv_bias: bool = False,
    tied: bool = False,
) -> Builder:
    """Llama (Touvron et al. 2023): RMS norms, rotary positions, gated feed-forward networks, no biases.

    kv_heads: heads of keys and values; 0: as many as heads. head_size: features of a head; 0: hidden / heads.
    feed_forward: of the gated network, whose activation is silu (SwiGLU), or gelu in Gemma. window: positions that
    each sees, in Mistral. qkv_bias: in Qwen. tied: the last matrix is that of the embedding.

    With l layers, h hidden, d features of a head, a heads, k of keys and values, f feed-forward and V vocabulary it
    has V h (1 + untied) + l (2 a d h + 2 k d h + 3 h f + 2 h) + h parameters.
    """
    if hidden % heads and not head_size:
        raise SpecError(
            f"model family 'llama': heads = {heads} must divide hidden = {hidden}; or give head_size."
        )
    kv_heads, size = kv_heads or heads, head_size or hidden // heads
    sees = {"causal": True, "kv_heads": kv_heads, "window": window, "rotary_base": rotary_base}
    net = Builder(sequence)
    net.embedding(vocabulary, hidden, keep=True, name="words")
    for _ in net.blocks(layers):
        source = net.last
        net.rms_norm()
        net.dense((heads + 2 * kv_heads) * size, bias=qkv_bias, name="qkv")
        net.attention(heads, name="attention", **sees)
        net.dense(hidden, bias=False, keep=False, name="projection")
        source = net.add((net.last, source))
        net.rms_norm()
        _gated(net, hidden, feed_forward, activation)
        net.add((net.last, source))
    net.rms_norm()
    _logits(net, vocabulary, tied=tied)
    return net


@family
def palm(
    layers: int,
    hidden: int,
    heads: int,
    head_size: int = 256,
    kv_heads: int = 1,
    sequence: int = 2048,
    vocabulary: int = 256000,
) -> Builder:
    """PaLM (Chowdhery et al. 2022, section 2): attention and SwiGLU in parallel, one head of keys and values.

    Norms have no biases, the feed-forward network is 4 hidden wide, the last matrix is that of the embedding.
    """
    net = Builder(sequence)
    net.embedding(vocabulary, hidden, keep=True, name="words")
    for _ in net.blocks(layers):
        source = net.last
        normal = net.layer_norm(bias=False)
        net.dense((heads + 2 * kv_heads) * head_size, bias=False, name="qkv")
        net.attention(heads, causal=True, kv_heads=kv_heads, rotary_base=10000, name="attention")
        attended = net.dense(hidden, bias=False, keep=False, name="projection")
        fed = _gated(net, hidden, 4 * hidden, "silu", after=normal)
        net.add((attended, fed, source))
    net.layer_norm(bias=False)
    _logits(net, vocabulary, tied=True)
    return net


@family
def opt(
    layers: int,
    hidden: int,
    heads: int,
    sequence: int = 2048,
    positions: int = 2050,
    vocabulary: int = 50272,
    dropout: float = 0.1,
) -> Builder:
    """OPT (Zhang et al. 2022, section 2): GPT with ReLU; the table of positions begins with two that are not used."""
    net = Builder(sequence)
    net.embedding(vocabulary, hidden, name="words")
    net.position_embedding(positions, keep=True, name="positions")
    for _ in net.blocks(layers):
        _block(net, hidden, heads, dropout=dropout, activation="relu")
    net.layer_norm()
    _logits(net, vocabulary, tied=True)
    return net


@family
def bloom(
    layers: int, hidden: int, heads: int, sequence: int = 2048, vocabulary: int = 250880
) -> Builder:
    """BLOOM (Le Scao et al. 2022, section 3.2): GPT with ALiBi, and a layer norm after the embedding."""
    net = Builder(sequence)
    net.embedding(vocabulary, hidden, keep=True, name="words")
    net.layer_norm(name="words_norm")
    for _ in net.blocks(layers):
        _block(net, hidden, heads, alibi=True)
    net.layer_norm()
    _logits(net, vocabulary, tied=True)
    return net


@family
def mpt(
    layers: int, hidden: int, heads: int, sequence: int = 2048, vocabulary: int = 50432
) -> Builder:
    """MPT (MosaicML 2023): GPT with ALiBi and without any bias."""
    net = Builder(sequence)
    net.embedding(vocabulary, hidden, keep=True, name="words")
    for _ in net.blocks(layers):
        _block(net, hidden, heads, alibi=True, bias=False)
    net.layer_norm(bias=False)
    _logits(net, vocabulary, tied=True)
    return net


def _block(
    net: Builder,
    hidden: int,
    heads: int,
    *,
    dropout: float = 0.0,
    activation: str = "gelu",
    alibi: bool = False,
    bias: bool = True,
) -> None:
    """Append a block of GPT: attention, then a feed-forward network of 4 hidden, each after a layer norm."""
    source = net.last
    net.layer_norm(bias=bias)
    net.dense(3 * hidden, bias=bias, name="qkv")
    net.attention(heads, causal=True, dropout=dropout, alibi=alibi, name="attention")
    net.dense(hidden, bias=bias, keep=False, name="projection")
    if dropout:
        net.dropout(dropout)
    source = net.add((net.last, source))
    net.layer_norm(bias=bias)
    net.dense(4 * hidden, bias=bias, name="expand")
    getattr(net, activation)()
    net.dense(hidden, bias=bias, keep=False, name="contract")
    if dropout:
        net.dropout(dropout)
    net.add((net.last, source))


def _gated(net: Builder, hidden: int, width: int, activation: str, after: str = "") -> str:
    """Append a gated feed-forward network (Shazeer 2020, eq. 6)."""
    source = after or net.last
    gate = net.dense(width, bias=False, name="gate", after=source)
    up = net.dense(width, bias=False, name="up", after=source)
    net.glu((gate, up), activation)
    return net.dense(hidden, bias=False, keep=False, name="down")


def _logits(net: Builder, vocabulary: int, *, tied: bool) -> None:
    net.dense(vocabulary, bias=False, fp32=True, tied="words" if tied else "", name="logits")
