"""Repeat each element along each dimension of space."""

from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class Upsample(Kind):
    """Repeat each element `factor` times along each dimension of space; not trained here."""

    backward_reads = frozenset({"input"})

    @staticmethod
    def describe(site: Site, factor: int) -> Counts:
        """Return the counts."""
        channels, *space = site.at_least(2)
        output = (channels, *(factor * extent for extent in space))
        return Counts(output, attributes={"factor": factor})
