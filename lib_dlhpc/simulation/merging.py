"""Messages that switches add or copy on their way: each link carries what they merge once."""

from collections.abc import Sequence

from lib_dlhpc.costs.platform import Platform
from lib_dlhpc.schedules.rounds import MULTICAST, STREAM, Round
from lib_dlhpc.simulation.simulation import Message


def merged(part: Round, sent: Sequence[Message], on: Platform) -> list[Message]:
    """Return the messages of a round of a switch, each with the links that no other of its sum or copy has yet.

    What streams takes the links of both directions at once, and its copies, a round later, none.
    """
    streams, copies = part.switch == STREAM, part.switch == MULTICAST
    ends = part.source if copies else part.target  # where messages of one offset are the same
    taken: dict[tuple[int, int], set[int]] = {}
    messages = []
    rows = zip(sent, ends.tolist(), part.offset.tolist(), part.reduce.tolist(), strict=True)
    for message, end, offset, reduce in rows:
        if streams and not reduce:
            messages.append(message._replace(bytes=0.0))
            continue
        back = on.route(message.target, message.source)[0] if streams else ()
        known = taken.setdefault((end, offset), set())
        links = tuple(link for link in (*message.links, *back) if link not in known)
        known.update(links)
        messages.append(message._replace(links=links))
    return messages
