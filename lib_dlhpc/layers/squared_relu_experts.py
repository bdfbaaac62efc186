"""Mixture of experts whose feed-forward networks have a squared ReLU, and neither gates nor biases."""

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Factor, Site
from lib_dlhpc.layers.base.routing import NO_LIMIT
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.layers.experts import Experts


def squared_relu(x: Array) -> Array:
    """Return max(0, x)^2."""
    y = np.maximum(x, 0)
    y *= y
    return y


def squared_relu_slope(x: Array) -> Array:
    """Return the derivative of squared_relu at x."""
    return 2 * np.maximum(x, 0)


class SquaredReluExperts(Experts):
    """y = sum of w max(0, x W1)^2 W2 over the chosen experts of a position (So et al. 2021, "Primer"; Nemotron 3).

    Routed as in experts.py.
    """

    expert_parameters = ("expand", "contract")
    function, slope = staticmethod(squared_relu), staticmethod(squared_relu_slope)
    biased = False

    @staticmethod
    def describe(
        site: Site,
        experts: int,
        chosen: int,
        features: int,
        capacity: Factor = NO_LIMIT,
        groups: int = 1,
        chosen_groups: int = 0,
    ) -> Counts:
        """Return the counts; options as in experts.py."""
        counts = Experts.describe(site, experts, chosen, features, capacity, groups, chosen_groups)
        return counts._replace(parameters=2 * experts * site.shape[-1] * features)
