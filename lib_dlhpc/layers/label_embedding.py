"""Label embedding: a learned row of features for the label that comes with a sample."""

from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class LabelEmbedding(Kind):
    """A row of a table for the sample's label (Peebles and Xie 2023, "DiT", section 3.2).

    The label comes with the sample, beside its pixels; not trained here.
    """

    backward_reads = frozenset()
    lookup = True

    @staticmethod
    def describe(site: Site, labels: int, features: int) -> Counts:
        """Return the counts; the output is one row, which only a sum reads, so it is not stored."""
        return Counts(
            (features,),
            parameters=labels * features,
            stored=0,
            attributes={"labels": labels, "features": features},
        )
