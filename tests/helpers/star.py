"""An allreduce added as CONTRIBUTING describes: a record, and one line that registers it."""

from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.network import Cost
from lib_dlhpc.spec.strategy import ALLREDUCES


def star(ranks, elements):
    """Allreduce: rank 0 receives from all ranks in turn, and sends the sum to each."""
    for rank in range(1, ranks):
        yield [(rank, 0, 0, elements, "reduce")]
    for rank in range(1, ranks):
        yield [(0, rank, 0, elements, "copy")]


def star_cost(n, net):
    """2 (p-1) (alpha + n beta) + (p-1) n gamma, alpha and beta of the level that a rank is on."""
    (g, a_in, b_in), (nodes, a_out, b_out) = net.inner, net.outer
    near, far = g - 1, g * (nodes - 1)
    latency = 2 * (near * a_in + far * a_out)
    return Cost(latency, 2 * n * (near * b_in + far * b_out), (near + far) * n * net.gamma)


STAR = Algorithm("star", "allreduce", star, star_cost, "star", "2 (p-1) (α + n β) + (p-1) n γ")


def add(where=ALLREDUCES):
    """The one line."""
    where["star"] = "star:STAR"
