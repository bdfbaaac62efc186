"""Shift: a vector that depends on the sample is added to the channels of an image."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class Shift(Kind):
    """x plus one element a channel, such as of the timestep (Ho et al. 2020, appendix B); not trained here."""

    backward_reads = frozenset()
    several_inputs = True

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts; reads (channels, *space) and (channels,)."""
        x, *others = site.shapes
        if len(x) < 2 or others != [x[:1]]:
            raise SpecError(
                f"{site.name}: reads {', '.join(map(str, site.shapes))}; legal: (channels, *space) and (channels,)."
            )
        return Counts(x)
