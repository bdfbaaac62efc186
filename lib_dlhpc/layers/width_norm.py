"""RMS normalization of all queries of a position together, and of all its keys, before attention."""

from lib_dlhpc.layers.base.kind import Counts, Layer, Site
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.layers.head_norm import HeadNorm


class WidthNorm(HeadNorm):
    """Queries over the features of all heads, and keys likewise, by their root mean square, then scaled.

    OLMo team 2024, "OLMo 2", section 3.2. A feature has its own scale. A position's norm needs all heads, so tensor
    parallelism gathers them (transformers, `base_model_tp_plan` of OLMo 2).
    """

    tensor = ""
    sequence = True

    @staticmethod
    def describe(site: Site, heads: int, kv_heads: int = 0) -> Counts:
        """Return the counts; kv_heads = 0: as many as heads. Stores normalized queries and keys."""
        found = HeadNorm.describe(site, heads, kv_heads)
        return found._replace(parameters=_features(site.shape[-1], **found.attributes)[1])

    def __init__(self, layer: Layer) -> None:
        self.queries, self.normed = _features(layer.input_shape[-1], **layer.attributes)
        self.shapes = {"queries": (self.queries,), "keys": (self.normed - self.queries,)}

    def _normed(self, x: Array) -> list[tuple[str, Array]]:
        """Return views of queries and of keys, (batch, positions, 1, features)."""
        one = x[:, :, None]
        parts = {"queries": slice(self.queries), "keys": slice(self.queries, self.normed)}
        return [(name, one[..., own]) for name, own in parts.items()]


def _features(width: int, heads: int, kv_heads: int, **others: object) -> tuple[int, int]:
    """Return the features of queries, and of queries and keys together."""
    size = width // (heads + 2 * kv_heads)
    return heads * size, (heads + kv_heads) * size
