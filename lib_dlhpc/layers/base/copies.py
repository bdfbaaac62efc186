"""To how many devices, or nodes, a token is sent: the expected number of different places of its experts.

The experts of a layer are spread evenly over N places, in order, and form G groups of E/G. A token has k experts in at
most M groups. The rule is uniform: every choice of M groups is equally probable, and then every choice of k of their
experts. A place has no expert of the token with probability

    q = sum over j of  C(r, j) C(G-r, M-j) / C(G, M)  *  C(M E/G - h_j, k) / C(M E/G, k)

where r groups have experts at the place, j of them are chosen, and h_j are its experts in those; expected are
N (1 - q), without groups N (1 - C(E - E/N, k) / C(E, k)).

Sources: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", arXiv 2412.19437, sections 2.1.2 (node-limited routing) and
3.2.2 (one copy a node over InfiniBand, forwarded over NVLink); DeepEP, csrc/kernels/legacy/layout.cu (dd758ca): a token
counts once for each rank and once for each node that has any of its experts. The formula is our own count.
"""

from functools import lru_cache
from math import comb

from lib_dlhpc.layers.base.kind import Layer


@lru_cache(maxsize=1024)
def expected_places(
    experts: int, chosen: int, groups: int, chosen_groups: int, places: int
) -> float:
    """Return the expected number of different places; places and groups: one divides the other."""
    of_group, of_place = experts // groups, experts // places
    open_to, touched = chosen_groups * of_group, max(1, groups // places)
    here = min(of_group, of_place)  # of a place's experts, those of one of its groups
    missed = 0.0
    for index in range(max(0, chosen_groups - (groups - touched)), min(touched, chosen_groups) + 1):
        ways = comb(touched, index) * comb(groups - touched, chosen_groups - index)
        left = comb(open_to - index * here, chosen) / comb(open_to, chosen)
        missed += ways / comb(groups, chosen_groups) * left
    return places * (1 - missed)


def copies(layer: Layer, places: int) -> float:
    """Return the elements of a sample that a rank sends to other places and its own, one copy of a token for each."""
    options = layer.attributes
    experts, chosen, groups = options["experts"], options["chosen"], options["groups"]
    many = expected_places(experts, chosen, groups, options["chosen_groups"] or groups, places)
    return float(options["routed"] / chosen * many * layer.output_shape[-1])
