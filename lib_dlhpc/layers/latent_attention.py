"""Multi-head latent attention: keys and values of all heads from one latent vector."""

from math import prod

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site


class LatentAttention(Kind):
    """Attention of heads whose values are smaller than their queries and keys (DeepSeek-AI 2024, "V2", section 2.1.2).

    Its inputs are queries (positions, heads * (plain + rotated)), keys and values side by side (positions, heads *
    (plain + values)), both expanded from their latent vectors by dense layers, and the rotated part of the keys
    (positions, rotated), which all heads share. It is causal. It can be predicted but not trained.
    """

    product = True
    selective = True
    several_inputs = True
    tensor = "heads"
    shared_inputs: tuple[int, ...] = (2,)
    expanded_inputs = (0, 1)

    @staticmethod
    def describe(site: Site, heads: int, values: int) -> Counts:
        """Return the counts; values: features of a head's values. The causal mask does not reduce them.

        Stores the softmax and the output, as attention does.
        """
        output, scores = _output(site, heads, values), heads * site.shape[0] ** 2
        size = site.shape[-1] // heads
        return Counts(
            output,
            forward_flop=2.0 * scores * (size + values),
            stored=scores + prod(output),
            attributes={
                "heads": heads,
                "values": values,
                "size": size,
                "rotated": site.shapes[2][-1],
            },
        )

    @staticmethod
    def attended(layer: Layer) -> tuple[float, float]:
        """Return the elements that it reads: queries, and the keys and values of its heads with the shared part."""
        (positions, queries), options = layer.input_shape, layer.attributes
        heads, rotary = queries // options["size"], options["rotated"]
        keys = heads * (options["size"] - rotary + options["values"]) + rotary
        return float(positions * queries), float(positions * keys)

    @staticmethod
    def extra_traffic(layer: Layer, size: int) -> float:
        """Return the elements that kernels move besides: scores in separate kernels, rotated queries and keys."""
        positions = layer.output_shape[0]
        return float(3 * layer.attributes["heads"] * positions**2 + rotated(layer))


def _output(site: Site, heads: int, values: int) -> tuple[int, int]:
    """Return the output's shape; raise SpecError if the three inputs are not of these heads."""
    if len(site.shapes) == 3 and all(len(shape) == 2 for shape in site.shapes):
        (positions, queries), (_, both), (_, rotary) = site.shapes
        fits = queries % heads == 0 and both == queries - heads * (rotary - values)
        if fits and queries > heads * rotary and len({shape[0] for shape in site.shapes}) == 1:
            return positions, heads * values
    raise SpecError(
        f"{site.name}: reads {', '.join(map(str, site.shapes))}; legal: queries of {heads} heads, their keys and values"
        f" of {values}, and the rotated part of the keys."
    )


def rotated(layer: Layer) -> int:
    """Return the elements that the rotation of queries and of the shared key reads and writes."""
    options = layer.attributes
    return 2 * int(layer.output_shape[0] * (options["heads"] + 1) * options["rotated"])
