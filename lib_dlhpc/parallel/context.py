"""Context parallelism: what the ranks that share a sequence exchange around the work of attention.

heads   queries, keys and values travel so that each rank has all tokens of some heads, and its outputs travel home:
        two all-to-alls forward, and the same backward (Jacobs et al. 2023, "DeepSpeed Ulysses", section 3.1)
ring    attention is computed a block at a time, against the keys and values of one rank, while those of the next
        arrive. Backward they travel once more, and their gradients follow them home (Liu et al. 2023, "Ring attention
        with blockwise transformers", section 3.2)
"""

from functools import lru_cache
from math import prod

from lib_dlhpc.layout import ring_blocks
from lib_dlhpc.program import Collective, Compute, Instruction, Wait
from lib_dlhpc.program.instructions import SHIFT
from lib_dlhpc.spec.model import Layer

NAME = "context"  # of the group, of the stream, and of what its time is counted as
KEYS, GRADIENTS = "keys and values", "gradients of keys and values"


def with_context(layer: Layer, work: Compute) -> list[Instruction]:
    """Return the computation of attention in one direction, with its exchanges."""
    if ring_blocks(layer) > 1:
        return _ring(layer, work)
    there, home = (
        Collective(NAME, NAME, "all_to_all", elements)
        for elements in (sum(layer.traits.attended(layer)), float(prod(layer.output_shape)))
    )
    return [there, work, home] if work.phase == "forward" else [home, work, there]


def _ring(layer: Layer, work: Compute) -> list[Instruction]:
    """Return the blocks of attention, and what travels beside them; gradients leave when their block is done."""
    ranks, found = ring_blocks(layer), list[Instruction]()
    block = Compute(work.layer, f"{work.phase}_block")
    backward = work.phase == "backward"
    for step in range(ranks):
        if step < ranks - 1:
            found.append(_shift(layer, f"{KEYS} {step}"))
        found.append(block)
        if backward and step:
            found.append(_arrived(f"{GRADIENTS} {step - 1}"))
        if step < ranks - 1:
            found.append(_arrived(f"{KEYS} {step}"))
        if backward:
            found.append(_shift(layer, f"{GRADIENTS} {step}"))
    return [*found, _arrived(f"{GRADIENTS} {ranks - 1}")] if backward else found


def _shift(layer: Layer, key: str) -> Collective:
    """Return the messages with the keys and values of a rank's tokens, or with their gradients, to the next rank."""
    ranks = ring_blocks(layer)
    _, elements = layer.traits.attended(layer)
    pairs = _to_next(ranks, elements)
    return Collective(NAME, NAME, SHIFT, elements, stream=NAME, key=key, pairs=pairs)


@lru_cache(maxsize=64)
def _to_next(ranks: int, elements: float) -> tuple[tuple[int, int, float], ...]:
    """Return who sends to whom; one for all blocks and layers, since programs keep theirs."""
    return tuple((rank, (rank + 1) % ranks, elements) for rank in range(ranks))


def _arrived(key: str) -> Wait:
    return Wait(NAME, NAME, key, KEYS)
