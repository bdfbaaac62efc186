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
    for rank, own in enumerate(trace.nodes):
        first, number = len(nodes), _numbers(trace, rank)
        nodes += own
        rank_of += [rank] * len(own)
        following += [[] for _ in own]
        for at, node in enumerate(own, first):
            for each in node.after:
                if each not in number:
                    raise SpecError(
                        f"{trace.words(rank, node)} depends on node {each}, which does not exist."
                    )
                following[first + number[each]].append(at)
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
    found: dict[int, int] = {}
    for index, node in enumerate(trace.nodes[rank]):
        if found.setdefault(node.id, index) != index:
            raise SpecError(f"{trace.words(rank, node)}: another node has the same number.")
    return found


def _order(
    trace: Trace, rank: int, first: int, following: list[list[int]], waits_for: list[int]
) -> list[int]:
    """Return the nodes of a rank, each after those that it depends on, else in the order of the file."""
    left = dict(enumerate(waits_for[first:], first))
    ready = [at for at, count in left.items() if not count]
    heapify(ready)
    found: list[int] = []
    while ready:
        at = heappop(ready)
        found.append(at)
        for each in following[at]:
            left[each] -= 1
            if not left[each]:
                heappush(ready, each)
    waiting = {at for at in left if left[at]}
    if waiting:
        # Who waits, only waits for others that wait: back from one to the next, to the first that comes twice.
        before = {each: at for at in sorted(waiting) for each in following[at] if each in waiting}
        at, seen = min(waiting), set[int]()
        while at not in seen:
            seen.add(at)
            at = before[at]
        node, other = trace.nodes[rank][at - first], trace.nodes[rank][before[at] - first]
        raise SpecError(
            f"{trace.words(rank, node)}: a cycle: it depends on node {other.id}, which depends on it,"
            " at once or through others."
        )
    return found


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
    found: dict[int, int] = {}
    for (source, target, tag), (sends_of, receives_of) in ends.items():
        alone = [(source, at, target, "receive") for at in sends_of[len(receives_of) :]]
        alone += [(target, at, source, "send") for at in receives_of[len(sends_of) :]]
        for rank, at, other, missing in alone:
            raise SpecError(
                f"{trace.words(rank, nodes[at])}: rank {other} has no {missing} of tag {tag} to match it."
            )
        found.update(zip(sends_of, receives_of, strict=True))
    return found


def _meetings(trace: Trace, nodes: list[Node], orders: list[list[int]]) -> dict[int, Meeting]:
    """Return the collective of each node: the n-th of a group on every rank of it."""
    calls: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for rank, order in enumerate(orders):
        for at in order:
            if nodes[at].type == "COMM_COLL_NODE":
                calls[nodes[at].group].setdefault(rank, []).append(at)
    found: dict[int, Meeting] = {}
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
            for rank, at in zip(ranks, together, strict=True):
                if nodes[at].collective != like.collective:
                    raise SpecError(
                        f"{trace.words(rank, nodes[at])}: {nodes[at].collective} in {_name(group)}; expected"
                        f" {like.collective}, as {trace.words(first, like)}."
                    )
            found |= dict.fromkeys(together, Meeting(ranks, together))
    return found


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
