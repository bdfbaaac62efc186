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

    It reads gate, x, B, C and dt side by side. Priced, not trained; each rank of a tensor group computes all of it.
    """

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
        if features != 2 * inner + shared + heads or heads % groups:
            raise SpecError(
                f"{site.name}: reads {features} features; {heads} heads of {head_size} in {groups} groups of state"
                f" {state} need {2 * inner + shared + heads}, and groups that divide the heads."
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
    def extra_traffic(layer: Layer) -> float:
        """Return what kernels pass to each other: outputs of the convolution, and states of 4 bytes four times."""
        of, positions = layer.attributes, layer.output_shape[0]
        inner = layer.output_shape[1]
        chunk = min(of["chunk"], positions)
        return float(positions * (2 * convolved(of) + 4 * 2 * inner * of["state"] / chunk))

    @staticmethod
    def repeated_flop(layer: Layer) -> float:
        """Return the FLOP of the states, which backward computes again."""
        return 2.0 * layer.output_shape[0] * layer.output_shape[1] * layer.attributes["state"]


def flop(chunk: int, of: Mapping[str, Any]) -> float:
    """Return the FLOP of a position in chunks of this length."""
    inner = float(of["heads"] * of["head_size"])
    return 2.0 * chunk * (of["state"] * of["groups"] + inner) + 4.0 * of["state"] * inner


def convolved(of: Mapping[str, Any]) -> int:
    """Return the features that the convolution reads: x, B and C."""
    return int(of["heads"] * of["head_size"] + 2 * of["groups"] * of["state"])


def state_elements(of: Mapping[str, Any]) -> int:
    """Return the numbers that a sequence leaves for its next position: states, and inputs of the convolution."""
    return int(of["heads"] * of["head_size"] * of["state"] + (of["kernel"] - 1) * convolved(of))
