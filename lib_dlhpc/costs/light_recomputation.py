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
    for at in chosen:
        if layers[at].traits.product:
            gathers |= {
                at_of[name] for name in layers[at].inputs if _is_exchange(layers, at_of, name)
            }
    found = list[LayerRun]()
    for at in sorted(chosen | gathers):
        stop = 1 + max((each for each in readers[at] if reads_input(layers[each])), default=-1)
        if not stop:
            continue
        if found and at < found[-1].stop:
            last = found.pop()
            found.append(LayerRun(last.first, max(last.stop, stop), (*last.repeated, at)))
        else:
            found.append(LayerRun(at, stop, (at,)))
    return found


def reads_input(layer: Layer) -> bool:
    """Return whether a layer's backward pass reads its input: a product with frozen weights does not."""
    return "input" in layer.traits.backward_reads and layer.gradients == 2


def _readers(layers: tuple[Layer, ...]) -> list[list[int]]:
    """Return the layers that read each output, behind exchanges between ranks, too."""
    at_of = {layer.name: index for index, layer in enumerate(layers)}
    found: list[list[int]] = [[] for _ in layers]
    for at in reversed(range(len(layers))):
        reach = found[at] if layers[at].kind == "exchange" else [at]
        for name in layers[at].inputs:
            if name in at_of:
                found[at_of[name]].extend(reach)
    return found


def _is_light(layer: Layer, at: int, readers: list[list[int]], layers: tuple[Layer, ...]) -> bool:
    if layer.traits.light:
        return True
    whole = layer.attributes.get("whole", layer)  # ranks of a group must choose alike
    if not layer.traits.product or prod(whole.output_shape) <= prod(whole.input_shape):
        return False
    return any(layer.name in _expanded(layers[each]) for each in readers[at])


def _expanded(layer: Layer) -> Iterator[str]:
    return (layer.inputs[number] for number in layer.traits.expanded_inputs)


def _is_exchange(layers: tuple[Layer, ...], at_of: dict[str, int], name: str) -> bool:
    return name in at_of and layers[at_of[name]].kind == "exchange"
