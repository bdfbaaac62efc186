"""Transformers: GPT (pre-norm decoder) and BERT (post-norm encoder)."""

from typing import Literal

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Factor
from lib_dlhpc.layers.base.routing import NO_LIMIT
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family


@family
def gpt(
    layers: int,
    hidden: int,
    heads: int,
    sequence: int = 1024,
    vocabulary: int = 51200,
    dropout: float = 0.1,
    experts: int = 0,
    chosen: int = 2,
    capacity: Factor = NO_LIMIT,
    expert_hidden: int = 0,
    shared: int = 0,
) -> Builder:
    """GPT; one sample is a sequence of `sequence` words.

    With l layers, h hidden, a heads, s sequence, V vocabulary it has
    12 l h^2 (1 + 13 / 12h + (V + s) / 12lh) + 2h parameters (Narayanan et al. 2021, eq. 2, plus the
    last layer norm that it leaves out), needs 24 s l h^2 (1 + s / 6h + V / 12lh) FLOP forward (a
    third of eq. 3 without recomputation) and stores sh (34 + 5as / h) bytes a layer in fp16
    (Korthikanti et al. 2022, table 2), plus 5sh + 4sV around them (section 4.4).

    experts: number of experts that replace each feed-forward network; each word is routed to its top
    `chosen` (Lepikhin et al. 2020, "GShard"); 0: dense. capacity: the words of a sequence that an expert
    takes, relative to an equal share; more are dropped; 0: no limit. expert_hidden: hidden size of an expert;
    0: 4 hidden. shared: experts that every word takes besides (Dai et al. 2024, "DeepSeekMoE"), computed as one
    feed-forward network of their hidden sizes together.
    """
    if not experts and expert_hidden + shared:
        raise SpecError(
            f"experts = 0: with expert_hidden = {expert_hidden}, shared = {shared}; legal: 0."
        )
    net = Builder(sequence)
    net.embedding(vocabulary, hidden, name="words")
    net.position_embedding(name="positions")
    net.dropout(dropout, keep=True)
    for _ in net.blocks(layers):
        source = net.last
        net.layer_norm()
        _attention(net, hidden, heads, dropout, causal=True)
        source = net.add((net.last, source))
        net.layer_norm()
        if experts:
            _experts(net, dropout, experts, chosen, capacity, expert_hidden, shared)
        else:
            _feed_forward(net, hidden, dropout)
        net.add((net.last, source))
    net.layer_norm()
    net.dense(vocabulary, bias=False, fp32=True, tied="words", name="logits")
    return net


@family
def bert(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    sequence: int = 128,
    vocabulary: int = 30522,
    positions: int = 512,
    predictions: int = 20,
    head: Literal["pretraining", "pooler"] = "pretraining",
    dropout: float = 0.1,
) -> Builder:
    """BERT (Devlin et al. 2018); one sample is a sequence of `sequence` words.

    head: "pretraining" predicts `predictions` masked words, with the word embedding as the last
    matrix, and the next-sentence label; "pooler" stops at the pooled vector.
    """
    net = Builder(sequence)
    words = net.embedding(vocabulary, hidden, name="words")
    segments = net.embedding(2, hidden, name="segments", after="input")
    net.position_embedding(positions, name="positions", after=words)
    net.add((net.last, segments))
    net.layer_norm()
    net.dropout(dropout, keep=True)
    for _ in net.blocks(layers):
        source = net.last
        _attention(net, hidden, heads, dropout, causal=False)
        net.add((net.last, source))
        source = net.layer_norm()
        _feed_forward(net, hidden, dropout)
        net.add((net.last, source))
        net.layer_norm()
    encoded = net.last
    if head == "pretraining":
        net.gather(min(predictions, sequence), name="masked")
        net.dense(hidden, name="transform")
        net.gelu()
        net.layer_norm()
        net.dense(vocabulary, fp32=True, tied="words", name="logits")
    net.gather(1, name="first", after=encoded)
    net.dense(hidden, name="pooler")
    net.tanh()
    if head == "pretraining":
        net.dense(2, name="next_sentence")
    return net


def _attention(net: Builder, hidden: int, heads: int, dropout: float, *, causal: bool) -> None:
    net.dense(3 * hidden, name="qkv")
    net.attention(heads, causal=causal, dropout=dropout, name="attention")
    net.dense(hidden, keep=False, name="projection")
    net.dropout(dropout)


def _feed_forward(net: Builder, hidden: int, dropout: float) -> None:
    net.dense(4 * hidden, name="expand")
    net.gelu()
    net.dense(hidden, keep=False, name="contract")
    net.dropout(dropout)


def _experts(
    net: Builder,
    dropout: float,
    experts: int,
    chosen: int,
    capacity: float,
    expert_hidden: int,
    shared: int,
) -> None:
    words, hidden = net.last, net.shape()[-1]
    width = expert_hidden or 4 * hidden
    scores = net.dense(experts, bias=False, name="router")
    routed = net.experts((words, scores), experts, chosen, width, capacity, name="experts")
    if shared:
        net.dense(shared * width, name="shared_expand", after=words)
        net.gelu(name="shared_gelu")
        net.add((net.dense(hidden, keep=False, name="shared_contract"), routed), name="mixture")
    net.dropout(dropout)
