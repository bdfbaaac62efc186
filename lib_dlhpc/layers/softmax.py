"""Exponentials that sum to one over the features."""

from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class Softmax(Kind):
    """Exponentials that sum to one over the features; trained only inside attention and the loss."""

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts."""
        return Counts(site.shape)
