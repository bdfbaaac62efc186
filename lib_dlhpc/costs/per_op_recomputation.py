"""Recomputation by operator: which layers of a block are repeated if every second matmul is stored.

Stored are fused attention, sums over ranks that leave a shard of the sequence, and every second matmul of a block from
the first on; of all else, what backward or another repeated layer reads is repeated. Two things differ from the source:
experts are one layer, which is stored, where it stores their exchange and repeats their matmuls; and what nothing reads
is not repeated, as compilers leave it out.

Source: torchtitan, selective activation checkpointing with option "op" (Liang et al. 2024, arXiv 2410.06511), by
PyTorch's create_selective_checkpoint_contexts.
"""

from lib_dlhpc.costs.light_recomputation import LayerRun, reads_input
from lib_dlhpc.spec.fusion import FUSED_KINDS
from lib_dlhpc.spec.model import Layer


def per_op_runs(layers: tuple[Layer, ...], blocks: list[tuple[int, int]]) -> list[LayerRun]:
    """Return each block with the layers that its backward pass repeats, from the first block to the last."""
    return [
        LayerRun(first, stop, repeated(layers, first, stop, _saved(layers, first, stop)))
        for first, stop in blocks
    ]


def repeated(layers: tuple[Layer, ...], first: int, stop: int, saved: set[int]) -> tuple[int, ...]:
    """Return which layers of a block backward, or another repeated one, reads the output of, if it is not saved."""
    readers: dict[str, list[int]] = {}
    for index in range(first, stop):
        for name in layers[index].inputs:
            readers.setdefault(name, []).append(index)
    chosen = set[int]()
    for index in reversed(range(first, stop)):
        layer = layers[index]
        reads = readers.get(layer.name, [])
        reads_output = "output" in layer.traits.backward_reads
        if index not in saved and (
            reads_output or any(read in chosen or reads_input(layers[read]) for read in reads)
        ):
            chosen.add(index)
    return tuple(sorted(chosen))


def _saved(layers: tuple[Layer, ...], first: int, stop: int) -> set[int]:
    saved, products = set[int](), 0
    for index in range(first, stop):
        layer = layers[index]
        if layer.traits.own_operands or layer.kind in FUSED_KINDS or _shards(layer):
            saved.add(index)
        elif layer.traits.product and not layer.traits.selective:
            products += 1
            if products % 2:
                saved.add(index)
    return saved


def _shards(layer: Layer) -> bool:
    return layer.kind == "exchange" and layer.attributes["forward"] == "reduce_scatter"
