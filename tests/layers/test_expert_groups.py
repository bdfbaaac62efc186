"""Laws of routing within groups of experts: the best groups by the sum of their best experts, and no other."""

import numpy as np
import pytest

from lib_dlhpc.layers.base.routing import routed

EXPERTS = 12


@pytest.mark.parametrize(("groups", "some", "chosen"), [(4, 2, 4), (6, 3, 3), (3, 1, 4), (4, 3, 2)])
def test_experts_are_of_the_best_groups(groups, some, chosen):
    scores = np.random.default_rng(3).normal(size=(2, 5, EXPERTS))
    found = routed(scores, chosen, 0, groups, some)
    size = EXPERTS // groups
    for p, own in zip(
        found.probabilities.reshape(-1, EXPERTS), found.experts.reshape(-1, chosen), strict=True
    ):
        worth = [
            sum(sorted(p[g * size : (g + 1) * size])[-max(1, chosen // some) :])
            for g in range(groups)
        ]
        best = sorted(range(groups), key=lambda g: -worth[g])[:some]
        open_to = [e for g in best for e in range(g * size, (g + 1) * size)]
        assert own.tolist() == sorted(open_to, key=lambda e: -p[e])[:chosen]
    assert np.allclose(found.weights.sum(axis=-1), 1.0)


def test_all_groups_are_no_limit():
    scores = np.random.default_rng(4).normal(size=(2, 5, EXPERTS))
    whole = routed(scores, 3, 0)
    for groups, some in ((1, 0), (4, 0), (4, 4)):
        for one, other in zip(whole, routed(scores, 3, 0, groups, some), strict=True):
            np.testing.assert_array_equal(one, other)
