"""Leaky ReLU whose slope is learned for each channel."""

from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class Prelu(Kind):
    """Leaky ReLU whose slope is learned for each channel; not trained here."""

    spatial = "rows"

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts; it stores its output beside its input."""
        return Counts(site.shape, parameters=site.shape[0])
