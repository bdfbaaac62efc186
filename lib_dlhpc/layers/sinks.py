"""Attention sinks: one learned logit of each head, beside the scores of its keys."""

from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class Sinks(Kind):
    """A logit of each head that takes a part of the softmax of the attention after it, and has no value to give.

    OpenAI 2025, "gpt-oss-120b & gpt-oss-20b model card", section 2.2. Queries, keys and values pass; what one more
    column of scores costs is not priced. It can be predicted but not trained.
    """

    view = True
    tensor = "heads"

    @staticmethod
    def describe(site: Site, heads: int, kv_heads: int = 0) -> Counts:
        """Return the counts; kv_heads = 0: as many as heads."""
        site.at_least(2)
        attributes = {"heads": heads, "kv_heads": kv_heads or heads}
        return Counts(site.shape, parameters=heads, stored=0, attributes=attributes)
