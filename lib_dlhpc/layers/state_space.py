"""State-space layer of Mamba-2: a causal convolution, a scan in chunks, and a gated norm, between two products.

A position changes a state of `state` numbers for each feature, h = a h + B x, and reads y = C h + D x. In chunks of Q
positions this is products of matrices: within a chunk (C B' with a mask) x, as in attention; between chunks the states
(Dao and Gu 2024, "Transformers are SSMs", arXiv 2405.21060, section 6 and listing 1). Per position, in FLOP:

    C B'           2 Q N G    of the groups that share B and C
    (C B') x       2 Q P H    H heads of P features
    states, B x    2 N P H
    C states       2 N P H

What a sequence leaves behind is the states and the last inputs of the convolution, whatever its length.
"""

from collections.abc import Mapping
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site


class StateSpace(Kind):
    """y = norm(scan(conv(x, B, C), dt) silu(gate)) of shape (positions, heads x head_size), by Mamba-2's fused kernels.

    It reads gate, x, B, C and dt side by side. Priced, not trained. Of a tensor group each rank has the heads of some
    groups (NVIDIA, Megatron-LM: MambaMixer); with fewer groups than ranks it computes all of it.
    """

    tensor = "groups"
    kernels = 7  # convolution, decays, C B', states, states between chunks, outputs, norm

    @staticmethod
    def describe(
        site: Site,
        heads: int,
        head_size: int,
        state: int,
        groups: int = 1,
        kernel: int = 4,
        chunk: int = 256,
    ) -> Counts:
        """Return the counts; parameters: kernels and biases, D, a and the bias of dt for a head each, scales."""
        positions, features = site.at_least(2)
        inner, shared = heads * head_size, 2 * groups * state
        if heads % groups:
            raise SpecError(
                f"{site.name}: groups = {groups}; legal: a divisor of the {heads} heads, which share B and C in groups."
            )
        if features != 2 * inner + shared + heads:
            raise SpecError(
                f"{site.name}: reads {features} features; {heads} heads of {head_size} in {groups} groups of state"
                f" {state} need {2 * inner + shared + heads}."
            )
        attributes = {"heads": heads, "head_size": head_size, "state": state}
        attributes |= {"groups": groups, "kernel": kernel, "chunk": chunk}
        return Counts(
            (positions, inner),
            parameters=(inner + shared) * (kernel + 1) + 3 * heads + inner,
            forward_flop=positions * flop(min(chunk, positions), attributes),
            stored=2
            * positions
            * inner,  # outputs of the scan and of the norm; all else is computed again
            attributes=attributes,
        )

    @staticmethod
    def extra_traffic(layer: Layer, size: int) -> float:
        """Return what kernels pass to each other, see `_passed`: outputs of the convolution, C B' and states."""
        inner, _, shared, states, scores = _passed(layer)
        wide = _wide(size)
        return float(4 * inner + 6 * shared + (2 * wide + 2) * states + 2 * wide * scores)

    @classmethod
    def beside(cls, layer: Layer, size: int) -> tuple[float, float]:
        """Return what backward moves beyond twice what forward does: it makes again all that forward passed on."""
        inner, whole, shared, states, scores = _passed(layer)
        wide = _wide(size)
        own = (2 * wide + 1) * states + 2 * wide * scores
        return 0.0, size * float(whole + 4 * inner + 10 * shared + own)

    @staticmethod
    def repeated_flop(layer: Layer) -> float:
        """Return the FLOP of backward beyond twice those of forward: C B', the states, and dy x once more for a."""
        of, (positions, inner) = layer.attributes, layer.output_shape
        chunk = min(of["chunk"], positions)
        return 2.0 * positions * (of["state"] * (inner + chunk * of["groups"]) + chunk * inner)


def _wide(size: int) -> int:
    """Return the elements of `size` B in which a number of 32 bits counts."""
    return max(4 // size, 1)


def _passed(layer: Layer) -> tuple[float, float, float, float, float]:
    """Return elements of a sample: x; x, B and C; B; states of chunks; C B'.

    Forward: the convolution reads and writes x, B, C; states are written in 32 bits, passed on in 16, and read; C B' is
    written and read in 32; the norm reads outputs and gates. Backward has fifteen kernels (state-spaces/mamba, e9594ce:
    ssd_combined.py).
    """
    of, (positions, inner) = layer.attributes, layer.output_shape
    shared, chunk = of["groups"] * of["state"], min(of["chunk"], positions)
    each = inner, inner + 2 * shared, shared, inner * of["state"] / chunk, chunk * of["groups"]
    x, whole, b, states, scores = (float(positions * many) for many in each)
    return x, whole, b, states, scores


def flop(chunk: int, of: Mapping[str, Any]) -> float:
    """Return the FLOP of a position in chunks of this length."""
    inner = float(of["heads"] * of["head_size"])
    return 2.0 * chunk * (of["state"] * of["groups"] + inner) + 4.0 * of["state"] * inner


def features_of(of: Mapping[str, Any], first: int, stop: int) -> tuple[tuple[int, int], ...]:
    """Return which features the heads of groups first ... stop - 1 read: of gate, x, B, C and dt."""
    heads, size, state, groups = (of[name] for name in ("heads", "head_size", "state", "groups"))
    found, begin = [], 0
    for each in (heads // groups * size, heads // groups * size, state, state, heads // groups):
        found.append((begin + first * each, begin + stop * each))
        begin += groups * each
    return tuple(found)


def convolved(of: Mapping[str, Any]) -> int:
    """Return the features that the convolution reads: x, B and C."""
    return int(of["heads"] * of["head_size"] + 2 * of["groups"] * of["state"])


def state_elements(of: Mapping[str, Any]) -> int:
    """Return the numbers that a sequence leaves for its next position: states, and inputs of the convolution."""
    return int(of["heads"] * of["head_size"] * of["state"] + (of["kernel"] - 1) * convolved(of))
