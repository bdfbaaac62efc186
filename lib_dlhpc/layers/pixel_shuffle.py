"""Rearrange channels into a higher resolution (Shi et al. 2016)."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class PixelShuffle(Kind):
    """Rearrange channels into `factor` times higher resolution (Shi et al. 2016); not trained here."""

    @staticmethod
    def describe(site: Site, factor: int) -> Counts:
        """Return the counts."""
        channels, *space = site.at_least(2)
        many = factor ** len(space)
        if channels % many:
            raise SpecError(
                f"{site.name}: factor = {factor} needs channels divisible by {many}, not {channels}."
            )
        output = (channels // many, *(factor * extent for extent in space))
        return Counts(output, stored=0, attributes={"factor": factor})
