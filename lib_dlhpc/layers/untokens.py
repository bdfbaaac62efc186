"""Positions of a sequence as an image: the inverse of layers/tokens.py."""

from math import prod

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class Untokens(Kind):
    """(positions, channels) as (channels, *space), row by row; not trained here."""

    backward_reads = frozenset()

    @staticmethod
    def describe(site: Site, space: tuple[int, ...]) -> Counts:
        """Return the counts; space: the extents of the image, whose product is the number of positions."""
        positions, channels = site.at_least(2)
        if prod(space) != positions:
            raise SpecError(
                f"{site.name}: space = {list(space)} has {prod(space)} positions; the input has {positions}."
            )
        return Counts((channels, *space), attributes={"space": space})
