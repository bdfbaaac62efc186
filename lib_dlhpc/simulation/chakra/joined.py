"""The graph of all ranks: which nodes follow which, which sends meet which receives, who takes part in a collective.

What does not fit is refused here, with the file and the node: a dependency on a missing node, a cycle, a
message without its other end, a collective in which ranks disagree.
"""

from collections import defaultdict
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.chakra import Node, Trace


@dataclass(frozen=True, eq=False)
class Meeting:
    """A collective: its ranks in order, and the node of each."""

    ranks: tuple[int, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Joined:
    """The nodes of all ranks, numbered through."""

    nodes: list[Node]
    rank: list[int]
    following: list[list[int]]
    waits_for: list[int]  # how many nodes
    receive_of: dict[int, int]  # by send
    meeting: dict[int, Meeting]  # by node


def joined(trace: Trace) -> Joined:
    """Return the graph of a trace. Raises SpecError for what does not fit together."""
    nodes: list[Node] = []
    rank_of: list[int] = []
    following: list[list[int]] = []
    waits_for: list[int] = []
    orders: list[list[int]] = []
    for rank, nodes_of_rank in enumerate(trace.nodes):
        first, number = len(nodes), _numbers(trace, rank)
        nodes += nodes_of_rank
        rank_of += [rank] * len(nodes_of_rank)
        following += [[] for _ in nodes_of_rank]
        for at, node in enumerate(nodes_of_rank, first):
            for before in node.after:
                if before not in number:
                    raise SpecError(
                        f"{trace.words(rank, node)} depends on node {before}, which does not exist."
                    )
                following[first + number[before]].append(at)
            waits_for.append(len(node.after))
        orders.append(_order(trace, rank, first, following, waits_for))
    receive_of = _messages(trace, nodes, orders)
    meeting = _meetings(trace, nodes, orders)
    for order in orders:  # the collectives of a group follow one another
        last: dict[str, int] = {}
        for at in order:
            if at in meeting:
                if nodes[at].group in last:
                    following[last[nodes[at].group]].append(at)
                    waits_for[at] += 1
                last[nodes[at].group] = at
    return Joined(nodes, rank_of, following, waits_for, receive_of, meeting)


def _numbers(trace: Trace, rank: int) -> dict[int, int]:
    """Return the place of each node in its file, by its number."""
    numbers: dict[int, int] = {}
    for index, node in enumerate(trace.nodes[rank]):
        if numbers.setdefault(node.id, index) != index:
            raise SpecError(f"{trace.words(rank, node)}: another node has the same number.")
    return numbers


def _order(
    trace: Trace, rank: int, first: int, following: list[list[int]], waits_for: list[int]
) -> list[int]:
    """Return the nodes of a rank, each after those that it depends on, else in the order of the file."""
    left = dict(enumerate(waits_for[first:], first))
    ready = [node for node, count in left.items() if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        at = heappop(ready)
        order.append(at)
        for follower in following[at]:
            left[follower] -= 1
            if not left[follower]:
                heappush(ready, follower)
    waiting = {node for node in left if left[node]}
    if waiting:
        # Who waits, only waits for others that wait: back from one to the next, to the first that comes twice.
        before = {
            follower: node
            for node in sorted(waiting)
            for follower in following[node]
            if follower in waiting
        }
        at, seen = min(waiting), set[int]()
        while at not in seen:
            seen.add(at)
            at = before[at]
        node, other = trace.nodes[rank][at - first], trace.nodes[rank][before[at] - first]
        raise SpecError(
            f"{trace.words(rank, node)}: a cycle: it depends on node {other.id}, which depends on it,"
            " at once or through others."
        )
    return order


def _messages(trace: Trace, nodes: list[Node], orders: list[list[int]]) -> dict[int, int]:
    """Return the receive of each send: of those with one source, target and tag, in order."""
    ends: dict[tuple[int, int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for rank, order in enumerate(orders):
        for at in order:
            node = nodes[at]
            if node.type in ("COMM_SEND_NODE", "COMM_RECV_NODE"):
                if node.peer >= trace.ranks:
                    raise SpecError(
                        f"{trace.words(rank, node)}: rank {node.peer}: expected 0 to {trace.ranks - 1}."
                    )
                sends = node.type == "COMM_SEND_NODE"
                key = (rank, node.peer, node.tag) if sends else (node.peer, rank, node.tag)
                ends[key][not sends].append(at)
    receive_of: dict[int, int] = {}
    for (source, target, tag), (sends_of, receives_of) in ends.items():
        alone = [(source, node, target, "receive") for node in sends_of[len(receives_of) :]]
        alone += [(target, node, source, "send") for node in receives_of[len(sends_of) :]]
        for rank, at, other, missing in alone:
            raise SpecError(
                f"{trace.words(rank, nodes[at])}: rank {other} has no {missing} of tag {tag} to match it."
            )
        receive_of.update(zip(sends_of, receives_of, strict=True))
    return receive_of


def _meetings(trace: Trace, nodes: list[Node], orders: list[list[int]]) -> dict[int, Meeting]:
    """Return the collective of each node: the n-th of a group on every rank of it."""
    calls: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for rank, order in enumerate(orders):
        for node in order:
            if nodes[node].type == "COMM_COLL_NODE":
                calls[nodes[node].group].setdefault(rank, []).append(node)
    meetings: dict[int, Meeting] = {}
    for group, of_rank in calls.items():
        ranks = _members(trace, group, of_rank)
        first = max(ranks, key=lambda rank: len(of_rank.get(rank, ())))
        for rank in ranks:
            if len(of_rank.get(rank, ())) < len(of_rank[first]):
                raise SpecError(
                    f"{trace.files[rank]}: {len(of_rank.get(rank, ()))} collectives in {_name(group)};"
                    f" expected {len(of_rank[first])}, as in {trace.files[first]}."
                )
        for together in zip(*(of_rank[rank] for rank in ranks), strict=True):
            like = nodes[together[ranks.index(first)]]
            for rank, node in zip(ranks, together, strict=True):
                if nodes[node].collective != like.collective:
                    raise SpecError(
                        f"{trace.words(rank, nodes[node])}: {nodes[node].collective} in {_name(group)}; expected"
                        f" {like.collective}, as {trace.words(first, like)}."
                    )
            meetings |= dict.fromkeys(together, Meeting(ranks, together))
    return meetings


def _members(trace: Trace, group: str, of_rank: dict[int, list[int]]) -> tuple[int, ...]:
    """Return the ranks of a process group: as listed beside the files, else all that take part."""
    if group in trace.groups:
        ranks = tuple(sorted(trace.groups[group]))
        for rank in of_rank:
            if rank not in ranks:
                node = next(node for node in trace.nodes[rank] if node.group == group)
                raise SpecError(f"{trace.words(rank, node)}: rank {rank} is not in {_name(group)}.")
        return ranks
    return tuple(sorted(of_rank)) if group else tuple(range(trace.ranks))


def _name(group: str) -> str:
    return f"process group {group}" if group else "the group of all ranks"
