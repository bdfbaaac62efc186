"""Fixed positions: a table of sines and cosines added at each position, which has no gradient."""

from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class FixedPositions(Kind):
    """Sines and cosines of each position are added to its features (Vaswani et al. 2017, section 3.5).

    The table is a constant, so no parameter; not trained here.
    """

    backward_reads = frozenset()
    sequence = True

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts."""
        return Counts(site.at_least(2))
