"""Mixture of experts: each position is routed to its top feed-forward networks."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Site


class Experts(Kind):
    """Mixture of experts; its inputs are the positions and their router scores; not trained here."""

    several_inputs = True

    @staticmethod
    def describe(site: Site, experts: int, chosen: int, features: int) -> Counts:
        """Return the counts; each position is routed to its top `chosen` networks of hidden size `features`.

        The load is balanced: all experts have the same number of positions (Fedus et al. 2022, "Switch
        transformers", section 2.2, adds a loss for that).
        """
        positions, width = site.at_least(2)
        if not 1 <= chosen <= experts:
            raise SpecError(f"{site.name}: chosen = {chosen}; legal: 1 to the {experts} experts.")
        routed = chosen * positions
        return Counts(
            (positions, width),
            parameters=experts * (2 * width * features + features + width),
            forward_flop=4.0 * routed * width * features,
            stored=routed * (2 * features + width),
            attributes={"experts": experts, "chosen": chosen, "features": features},
        )
