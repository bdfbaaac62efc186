"""Hybrid: a causal language model of state-space layers, attention and feed-forward networks, in any order.

Source: NVIDIA 2025, "Nemotron-H" (arXiv 2504.03624), section 2.1 and table 1.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.decoder import heads, network
from lib_dlhpc.spec.networks.family import family
from lib_dlhpc.spec.networks.options import check_options, signature

LETTERS = "M*-"


@family
def hybrid(
    pattern: str,
    hidden: int,
    attention: Mapping[str, Any],
    state_space: Mapping[str, Any],
    feed_forward: Mapping[str, Any],
    sequence: int = 2048,
    vocabulary: int = 32000,
    tied: bool = False,
) -> Builder:
    """A causal language model whose layers are a norm, one part and a residual each; one sample is a sequence.

    pattern: a letter for each layer, M state space, * attention, - feed-forward network; the options of the tables are
    those of `mixer` here, and of `heads` and `network` in decoder.py. tied: the last matrix is that of the embedding.
    """
    if not pattern or set(pattern) - {*LETTERS}:
        raise SpecError(
            f"pattern = {pattern!r}: legal: letters M (state space), * (attention), - (feed-forward network)."
        )
    parts: dict[str, tuple[Callable[..., None], Mapping[str, Any], str]] = {
        "M": (mixer, state_space, "state_space"),
        "*": (heads, attention, "attention"),
        "-": (network, feed_forward, "feed_forward"),
    }
    net = Builder(sequence)
    net.embedding(vocabulary, hidden, keep=True, name="words")
    for number, letter in enumerate(pattern, 1):
        append, options, table = parts[letter]
        where = f"{table} of model family 'hybrid'"
        with net.block(f"layer{number}"):
            source = net.last
            net.rms_norm()
            append(net, **check_options(signature(append), options, where))
            net.add((net.last, source))
    net.rms_norm()
    net.dense(vocabulary, bias=False, fp32=True, tied="words" if tied else "", name="logits")
    return net


def mixer(
    _net: Builder,
    heads: int,
    head_size: int,
    state: int,
    groups: int = 1,
    kernel: int = 4,
    chunk: int = 256,
) -> None:
    """Append a state-space layer (layers/state_space.py) between two products."""
    hidden, inner = _net.shape()[-1], heads * head_size
    _net.dense(2 * inner + 2 * groups * state + heads, bias=False, name="in_projection")
    _net.state_space(heads, head_size, state, groups, kernel, chunk, name="scan")
    _net.dense(hidden, bias=False, keep=False, name="out_projection")
