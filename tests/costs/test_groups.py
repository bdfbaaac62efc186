"""Laws of groups: who shares a node, who shares its NICs, and what exchanges cost on it."""

import pytest

from lib_dlhpc import Experiment
from lib_dlhpc.costs import groups
from lib_dlhpc.costs.network import network_of

# 32 devices, 8 a node, 8 NICs.
RUN = Experiment(model="resnet50", dataset="imagenet", machine="selene", strategy={"nodes": 4})


def net(kind, **split):
    run = RUN.set({f"strategy.{name}": value for name, value in split.items()})
    return groups.group_network(run, kind)


@pytest.mark.parametrize(
    ("kind", "split", "near", "nodes"),
    [
        ("tensor", {"tensor": 8}, 8, 1),
        ("tensor", {"tensor": 2}, 2, 1),
        ("tensor", {"tensor": 16}, 8, 2),
        ("data", {"tensor": 8}, 1, 4),
        ("data", {"tensor": 2}, 4, 4),
        ("data", {"pipeline": 4, "microbatches": 4}, 8, 1),
        ("pipeline", {"pipeline": 4, "microbatches": 4}, 1, 4),
        ("spatial", {"spatial": 4}, 4, 1),
        ("data", {"spatial": 4}, 2, 4),
    ],
)
def test_neighbors_in_rank_order_share_a_node(kind, split, near, nodes):
    found = net(kind, **split)
    assert (found.inner.ranks, found.outer.ranks) == (near, nodes)


def test_a_group_of_all_ranks_sees_the_whole_machine():
    found, whole = net("data"), network_of(RUN)
    assert found.inner == whole.inner and found.outer.ranks == whole.outer.ranks
    assert found.outer.beta == pytest.approx(whole.outer.beta)
    assert found.gamma == whole.gamma


def test_groups_that_leave_a_node_together_share_its_nics():
    alone, eight = net("data"), net("data", tensor=8)
    assert eight.outer.beta == pytest.approx(8 * alone.outer.beta)
    link = RUN.machine.inter_node
    assert eight.outer.beta == pytest.approx(1 / (link.bandwidth * link.efficiency))  # a NIC each


def test_a_message_stays_in_its_node_or_shares_the_nics_with_those_beside_it():
    link, inside = RUN.machine.inter_node, RUN.machine.intra_node
    near, far, edge = (
        groups.wire(RUN, 0, 4, 4),
        groups.wire(RUN, 0, 8, 8),
        groups.wire(RUN, 4, 8, 4),
    )
    assert near.latency == inside.latency and far.latency == edge.latency == link.latency
    rate = link.bandwidth * link.efficiency
    assert far.beta == pytest.approx(1 / rate)  # eight devices, eight NICs
    assert edge.beta == pytest.approx(4 / (8 * rate))  # four of them leave
    assert far.cost(1e9, 3).total == pytest.approx(3 * link.latency + 1e9 / rate)


def test_a_sum_is_a_reduce_scatter_and_a_gather():
    found = net("tensor", tensor=8)
    gather, scatter, both = (
        groups.collective(goal, 1e8, found, 5)
        for goal in ("allgather", "reduce_scatter", "allreduce")
    )
    assert both.total == pytest.approx(gather.total + scatter.total)
    assert gather.bandwidth == scatter.bandwidth == pytest.approx(7 / 8 * 1e8 * found.inner.beta)
    assert gather.latency == pytest.approx(5 * 3 * found.inner.alpha)  # partners 1, 2, 4 away
    assert gather.reduction == 0 < scatter.reduction


def test_everyone_with_everyone_is_held_up_by_what_leaves_the_node():
    inside, across = net("tensor", tensor=8), net("tensor", tensor=16)
    assert groups.all_to_all(1e8, inside).bandwidth == pytest.approx(
        7 / 8 * 1e8 * inside.inner.beta
    )
    link = RUN.machine.inter_node
    expected = 8 / 16 * 1e8 / (link.bandwidth * link.efficiency)  # half of it leaves, a NIC each
    assert groups.all_to_all(1e8, across).bandwidth == pytest.approx(expected)
