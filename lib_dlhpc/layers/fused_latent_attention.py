"""Latent attention in one kernel: no matrix of scores in memory (fused_attention.py)."""

from dataclasses import replace
from math import prod

from lib_dlhpc.layers.base.kind import Counts, Layer, Site
from lib_dlhpc.layers.base.merged import merged
from lib_dlhpc.layers.latent_attention import LatentAttention, rotated

ROW = 4  # bytes of the logarithm of a row's sum


class FusedLatentAttention(LatentAttention):
    """Latent attention whose scores exist a block at a time, and are recomputed in backward."""

    selective = False

    @staticmethod
    def describe(site: Site, heads: int, values: int) -> Counts:
        """Return the counts: the output is stored, and a number for each row of scores."""
        apart = LatentAttention.describe(site, heads, values)
        return apart._replace(stored=None, mask_bytes=ROW * heads * apart.output[0])

    @classmethod
    def beside(cls, layer: Layer, size: int) -> tuple[float, float]:
        """Return what sums of blocks move."""
        return merged(layer, size)

    @staticmethod
    def extra_traffic(layer: Layer, size: int) -> float:
        """Return the elements that the rotation moves: scores stay on the chip."""
        return float(rotated(layer))

    @staticmethod
    def repeated_flop(layer: Layer) -> float:
        """Return the FLOP of q k^T."""
        size, values = layer.attributes["size"], layer.attributes["values"]
        return layer.forward_flop * size / (size + values)

    @staticmethod
    def computed_part(layer: Layer) -> float:
        """Return which part of the products the causal mask leaves."""
        positions = layer.attributes.get("sequence", layer.output_shape[0])
        return (positions + 1) / (2 * positions)


def fused_latent(layer: Layer, fuse: bool) -> Layer:
    """Return a full layer of latent attention as one kernel, or as separate ones."""
    rows = layer.attributes["heads"] * layer.output_shape[0]
    return replace(
        layer,
        kind="fused_latent_attention" if fuse else "latent_attention",
        stored=prod(layer.output_shape) + (0 if fuse else rows * layer.output_shape[0]),
        mask_bytes=ROW * rows if fuse else 0,
    )
