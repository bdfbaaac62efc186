"""Group normalization: groups of channels over space, with a learned scale and shift of each channel."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class GroupNorm(Kind):
    """Each group of channels with mean 0 and variance 1 over space, then scaled and shifted (Wu and He 2018).

    Not trained here.
    """

    backward_reads = frozenset({"input"})
    light = True

    @staticmethod
    def describe(site: Site, groups: int = 32) -> Counts:
        """Return the counts."""
        shape = site.at_least(2)
        if shape[0] % groups:
            raise SpecError(f"{site.name}: groups = {groups} must divide its {shape[0]} channels.")
        return Counts(shape, parameters=2 * shape[0], attributes={"groups": groups})
