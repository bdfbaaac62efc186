"""Light recomputation: outputs that are cheap to compute again, and how long each has to be in memory in backward.

Recomputed are the outputs of norms and of activations that backward computes from their input (`Kind.light`), and what
products expand from a smaller vector for latent attention (`Kind.expanded_inputs`). What they read is stored in any
case, or is recomputed as well. The other products, attention and routing are not repeated, nor are the all-to-alls of
experts; experts make their own activation again within their backward pass (`Kind.light_elements`).

Source: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", arXiv 2412.19437, sections 3.2.3 (RMSNorm and up-projections
of latent attention) and 3.3.3 (the output of SwiGLU).
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from lib_dlhpc.spec.model import Layer


class LayerRun(NamedTuple):
    """Layers first, ..., stop - 1: up to the last that reads one of the `repeated` in its backward pass."""

    first: int
    stop: int
    repeated: tuple[int, ...]


def light_runs(layers: tuple[Layer, ...]) -> list[LayerRun]:
    """Return the runs of layers within which outputs are recomputed, from the first layer to the last."""
    readers = _readers(layers)
    chosen = {
        index for index, layer in enumerate(layers) if _is_light(layer, index, readers, layers)
    }
    at_of = {layer.name: index for index, layer in enumerate(layers)}
    gathers = set[int]()  # a repeated product needs its whole input
    for number in chosen:
        if layers[number].traits.product:
            gathers |= {
                at_of[name] for name in layers[number].inputs if _is_exchange(layers, at_of, name)
            }
    runs = list[LayerRun]()
    for number in sorted(chosen | gathers):
        stop = 1 + max(
            (reader for reader in readers[number] if reads_input(layers[reader])), default=-1
        )
        if not stop:
            continue
        if runs and number < runs[-1].stop:
            last = runs.pop()
            runs.append(LayerRun(last.first, max(last.stop, stop), (*last.repeated, number)))
        else:
            runs.append(LayerRun(number, stop, (number,)))
    return runs


def reads_input(layer: Layer) -> bool:
    """Return whether a layer's backward pass reads its input: a product with frozen weights does not."""
    return "input" in layer.traits.backward_reads and layer.gradients == 2


def _readers(layers: tuple[Layer, ...]) -> list[list[int]]:
    """Return the layers that read each output, behind exchanges between ranks, too."""
    at_of = {layer.name: index for index, layer in enumerate(layers)}
    readers: list[list[int]] = [[] for _ in layers]
    for number in reversed(range(len(layers))):
        reach = readers[number] if layers[number].kind == "exchange" else [number]
        for name in layers[number].inputs:
            if name in at_of:
                readers[at_of[name]].extend(reach)
    return readers


def _is_light(
    layer: Layer, index: int, readers: list[list[int]], layers: tuple[Layer, ...]
) -> bool:
    if layer.traits.light:
        return True
    whole = layer.attributes.get("whole", layer)  # ranks of a group must choose alike
    if not layer.traits.product or prod(whole.output_shape) <= prod(whole.input_shape):
        return False
    return any(layer.name in _expanded(layers[reader]) for reader in readers[index])


def _expanded(layer: Layer) -> Iterator[str]:
    return (layer.inputs[number] for number in layer.traits.expanded_inputs)


def _is_exchange(layers: tuple[Layer, ...], at_of: dict[str, int], name: str) -> bool:
    return name in at_of and layers[at_of[name]].kind == "exchange"
