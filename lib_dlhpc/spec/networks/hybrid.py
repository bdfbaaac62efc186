"""Hybrid: a causal language model of state-space layers, attention, feed-forward networks and experts, in any order.

Source: NVIDIA 2025, "Nemotron-H" (arXiv 2504.03624), section 2.1 and table 1; with experts: NVIDIA 2025, "Nemotron 3".
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.decoder import heads, mixture, network
from lib_dlhpc.spec.networks.family import family
from lib_dlhpc.spec.networks.options import check_options, signature

LETTERS = "M*-E"


@family
def hybrid(
    pattern: str,
    hidden: int,
    attention: Mapping[str, Any] | None = None,
    state_space: Mapping[str, Any] | None = None,
    feed_forward: Mapping[str, Any] | None = None,
    experts: Mapping[str, Any] | None = None,
    sequence: int = 2048,
    vocabulary: int = 32000,
    tied: bool = False,
) -> Builder:
    """A causal language model whose layers are a norm, one part and a residual each; one sample is a sequence.

    pattern: a letter for each layer, M state space, * attention, - feed-forward network, E experts; each needs its
    table, whose options are those of `mixer` here, or of `heads`, `network` or `mixture` in decoder.py. tied: the last
    matrix is that of the embedding.
    """
    parts: dict[str, tuple[Callable[..., None], str, Mapping[str, Any] | None]] = {
        "M": (mixer, "state_space", state_space),
        "*": (heads, "attention", attention),
        "-": (network, "feed_forward", feed_forward),
        "E": (mixture, "experts", experts),
    }
    if not pattern or set(pattern) - {*parts}:
        raise SpecError(
            f"pattern = {pattern!r}: legal: letters M (state space), * (attention), - (feed-forward network),"
            " E (experts)."
        )
    ready: dict[str, Callable[[Builder], None]] = {}
    for letter, (append, table, given) in parts.items():
        if given is not None:
            where = f"{table} of model family 'hybrid'"
            ready[letter] = partial(append, **check_options(signature(append), given, where))
        elif letter in pattern:
            raise SpecError(
                f"pattern = {pattern!r}: letter {letter} needs the table [model.{table}]."
            )
    net = Builder(sequence)
    net.embedding(vocabulary, hidden, keep=True, name="words")
    for number, letter in enumerate(pattern, 1):
        with net.block(f"layer{number}"):
            source = net.last
            net.rms_norm()
            ready[letter](net)
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
