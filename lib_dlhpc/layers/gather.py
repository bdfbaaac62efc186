"""Some positions of a sequence, such as its masked words."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class Gather(Kind):
    """Some positions of a sequence, such as its masked words; not trained here."""

    @staticmethod
    def describe(site: Site, positions: int) -> Counts:
        """Return the counts."""
        shape = site.at_least(2)
        if positions > shape[0]:
            raise SpecError(
                f"{site.name}: positions = {positions} is more than the {shape[0]} given."
            )
        return Counts((positions, *shape[1:]), attributes={"positions": positions})
