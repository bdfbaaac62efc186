"""Context parallelism: what the ranks that share a sequence exchange around the work of attention.

heads   queries, keys and values travel so that each rank has all tokens of some heads, and its outputs travel home:
        two all-to-alls forward, and the same backward (Jacobs et al. 2023, "DeepSpeed Ulysses", section 3.1)
ring    attention is computed a block at a time, against the keys and values of one rank, while those of the next
        arrive. Backward they travel once more, and their gradients follow them home (Liu et al. 2023, "Ring attention
        with blockwise transformers", section 3.2)
gather  the same blocks, but keys and values are gathered once, before the first of them, and repeated for each head of
        queries. Their gradients go round in fp32, and sums of blocks are kernels of their own (PyTorch,
        torch/distributed/tensor/experimental/_attention.py, with _RotateMethod.ALL_GATHER, its default). Nothing is
        hidden: where a model is compiled, collectives are waited for at once (torch/distributed/
        _functional_collectives.py: _maybe_wrap_tensor), and Inductor moves no wait (its default,
        reorder_for_compute_comm_overlap = False)
"""

from functools import lru_cache
from math import prod

from lib_dlhpc.layout import gathers_keys, key_elements, ring_blocks
from lib_dlhpc.program import Collective, Compute, Instruction, Wait
from lib_dlhpc.program.instructions import GATHER, SAMPLES, SHIFT, WIDE
from lib_dlhpc.spec.model import Layer

NAME = "context"  # of the group, of the stream, and of what its time is counted as
KEYS, GRADIENTS = "keys and values", "gradients of keys and values"


def with_context(layer: Layer, work: Compute) -> list[Instruction]:
    """Return the computation of attention in one direction, with its exchanges."""
    if ring_blocks(layer) > 1:
        return _gathered(layer, work) if gathers_keys(layer) else _ring(layer, work)
    there, home = (
        Collective(NAME, NAME, "all_to_all", elements)
        for elements in (sum(layer.traits.attended(layer)), float(prod(layer.output_shape)))
    )
    return [there, work, home] if work.phase == "forward" else [home, work, there]


def _ring(layer: Layer, work: Compute) -> list[Instruction]:
    """Return the blocks of attention, and what travels beside them; gradients leave when their block is done."""
    ranks, emitted = ring_blocks(layer), list[Instruction]()
    backward = work.phase == "backward"
    for step in range(ranks):
        arrives = step < ranks - 1
        if arrives:
            emitted.append(_shift(layer, f"{KEYS} {step}"))
        emitted.append(_block(work))
        if backward and step:
            emitted.append(_arrived(f"{GRADIENTS} {step - 1}"))
        if arrives:
            emitted.append(_arrived(f"{KEYS} {step}"))
        if backward:
            emitted.append(_shift(layer, f"{GRADIENTS} {step}"))
    return [*emitted, _arrived(f"{GRADIENTS} {ranks - 1}")] if backward else emitted


def _gathered(layer: Layer, work: Compute) -> list[Instruction]:
    """Return the all-gather of the keys and values of all tokens, and the blocks; each message is exposed."""
    ranks, emitted = ring_blocks(layer), list[Instruction]()
    elements = ranks * key_elements(layer)
    emitted += [Collective(NAME, NAME, GATHER, elements, stream=NAME, key=KEYS), _arrived(KEYS)]
    for step in range(ranks):
        emitted.append(_block(work))
        if work.phase == "backward":
            key = f"{GRADIENTS} {step}"
            emitted += [_shift(layer, key, WIDE), _arrived(key)]
    return emitted


def _block(work: Compute) -> Compute:
    return Compute(work.layer, f"{work.phase}_block")


def _shift(layer: Layer, key: str, of: str = SAMPLES) -> Collective:
    """Return the messages with the keys and values of a rank's tokens, or with their gradients, to the next rank."""
    elements = key_elements(layer)
    pairs = _to_next(ring_blocks(layer), elements)
    return Collective(NAME, NAME, SHIFT, elements, of, stream=NAME, key=key, pairs=pairs)


@lru_cache(maxsize=64)
def _to_next(ranks: int, elements: float) -> tuple[tuple[int, int, float], ...]:
    """Return who sends to whom; one for all blocks and layers, since programs keep theirs."""
    return tuple((rank, (rank + 1) % ranks, elements) for rank in range(ranks))


def _arrived(key: str) -> Wait:
    return Wait(NAME, NAME, key, KEYS)
