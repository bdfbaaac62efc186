"""Latent attention of each query to the positions that an indexer chose (DeepSeek-AI 2025, "DeepSeek-V3.2-Exp")."""

from lib_dlhpc.layers.base.kind import Counts, Layer, Site
from lib_dlhpc.layers.fused_latent_attention import FusedLatentAttention
from lib_dlhpc.layers.latent_attention import rotated


class SparseLatentAttention(FusedLatentAttention):
    """Fused latent attention whose heads share the vectors of the chosen positions, unexpanded (section 2.1, MQA mode).

    It reads the inputs of latent attention and, as a fourth, what an indexer has chosen. A query of each head is as
    wide as the latent vector and the rotated key, and its values are the latent vectors: 2 heads (2 latent + rotated)
    FLOP a pair. The products that fold the expansion into queries and outputs cost what expanding costs, and are
    counted there; that they are wider is not. Each query reads its own vectors from memory. Priced, not trained.
    """

    shared_inputs = (2, 3)

    @staticmethod
    def describe(site: Site, heads: int, values: int, latent: int = 0) -> Counts:
        """Return the counts; latent: features of a latent vector."""
        *three, (positions, chosen) = site.shapes
        found = FusedLatentAttention.describe(site._replace(shapes=tuple(three)), heads, values)
        options = {**found.attributes, "latent": latent, "chosen": chosen}
        each = 2.0 * heads * (2 * latent + options["rotated"])
        return found._replace(forward_flop=each * positions * chosen, attributes=options)

    @staticmethod
    def extra_traffic(layer: Layer, size: int) -> float:
        """Return the elements that the rotation moves, and those of the vectors that queries read."""
        of, part = layer.attributes, SparseLatentAttention.computed_part(layer)
        pairs = part * layer.output_shape[0] * of["chosen"]
        return float(rotated(layer) + pairs * (of["latent"] + of["rotated"]))

    @staticmethod
    def repeated_flop(layer: Layer) -> float:
        """Return the FLOP of q k^T."""
        of = layer.attributes
        return (
            layer.forward_flop * (of["latent"] + of["rotated"]) / (2 * of["latent"] + of["rotated"])
        )

    @staticmethod
    def computed_part(layer: Layer) -> float:
        """Return which part of the products the causal mask leaves: position i sees min(i, chosen) of them."""
        positions, chosen = layer.output_shape[0], layer.attributes["chosen"]
        return (positions - (chosen - 1) / 2) / positions
