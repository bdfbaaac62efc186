"""Lab 13, read a trace: a solution, and mistakes by name."""


def covered(rows):
    """Return the seconds in which at least one of the rows is going on."""
    total, until = 0.0, float("-inf")
    for each in sorted(rows, key=lambda row: row.start):
        total += max(0.0, each.stop - max(each.start, until))
        until = max(until, each.stop)
    return total


def account(events, ranks):
    """Return of each rank the seconds of computation, of exposed communication, and the rest of the run."""
    run = max(each.stop for each in events) - min(each.start for each in events)
    rows = []
    for rank in range(ranks):
        own = [each for each in events if each.rank == rank]
        work = [each for each in own if each.kind in ("forward", "backward", "update")]
        talk = [each for each in own if each.stream == "communication"]
        computes, both = covered(work), covered(work + talk)
        rows.append((computes, both - computes, run - both))
    return rows


def late_senders(events, ranks):
    """Return the seconds that each rank waits for messages of each, [waits][late]."""
    sent = {each.match: each for each in events if each.kind == "send"}
    lost = [[0.0] * ranks for _ in range(ranks)]
    for each in events:
        if each.kind == "receive":
            send = sent[each.match]
            lost[each.rank][send.rank] += max(0.0, min(send.start, each.stop) - each.start)
    return lost


def meetings(events):
    """Return the calls of each collective, by its match."""
    found = {}
    for each in events:
        if each.kind == "collective":
            found.setdefault(each.match, []).append(each)
    return found


def collective_waits(events, ranks):
    """Return the seconds that each rank waits in collectives for the last to join, [waits][late]."""
    lost = [[0.0] * ranks for _ in range(ranks)]
    for calls in meetings(events).values():
        last = max(calls, key=lambda call: call.start)
        for each in calls:
            lost[each.rank][last.rank] += min(last.start, each.stop) - each.start
    return lost


def every_wait(events):
    """Return (waiting call, the call it waits for) of all waits."""
    sent = {each.match: each for each in events if each.kind == "send"}
    last = {
        match: max(calls, key=lambda call: call.start) for match, calls in meetings(events).items()
    }
    pairs = [(each, sent[each.match]) for each in events if each.kind == "receive"]
    pairs += [(each, last[each.match]) for each in events if each.kind == "collective"]
    return [(one, other) for one, other in pairs if other.start > one.start]


def culprit(events, ranks):
    """Return the rank whose own delays keep the others waiting, and the seconds that this costs the run."""
    waits = every_wait(events)
    # Of the steps.
    ends = sorted(min(call.stop for call in calls) for calls in meetings(events).values())
    lost = [[[0.0] * ranks for _ in ends] for _ in range(ranks)]  # [late][step][waits]
    for one, other in waits:
        step = sum(end <= one.start for end in ends)
        since = ends[step - 1] if step else 0.0
        excuse = sum(
            cause.start - held.start
            for held, cause in waits
            if held.rank == other.rank and since <= held.start < other.start
        )
        lost[other.rank][step][one.rank] += max(0.0, other.start - one.start - excuse)
    cost = [sum(max(waits) for waits in steps) for steps in lost]
    rank = cost.index(max(cost))
    return rank, cost[rank]


def calls_of(events, ranks):
    """Return the calls of each rank in order."""
    calls = [each for each in events if each.kind in ("send", "receive", "collective")]
    return [[each for each in calls if each.rank == rank] for rank in range(ranks)]


def critical_path(events, ranks):
    """Return the pieces (rank, what, start, stop) of the critical path."""
    calls = calls_of(events, ranks)
    place = {id(call): number for own in calls for number, call in enumerate(own)}
    cause = {id(one): other for one, other in every_wait(events)}
    last = max((own[-1] for own in calls), key=lambda call: call.stop)
    rank, number, time, pieces = last.rank, len(calls[last.rank]) - 1, last.stop, []
    while number >= 0:
        call = calls[rank][number]
        if time > call.stop:
            pieces.append((rank, "computation", call.stop, time))
        waited = cause.get(id(call), call)
        pieces.append((rank, call.kind, waited.start, call.stop))
        rank, number, time = waited.rank, place[id(waited)] - 1, waited.start
    pieces.append((rank, "computation", min(each.start for each in events), time))
    return pieces[::-1]


def dominates(pieces):
    """Return the rank and the activity with the most seconds of a path."""
    sums = {}
    for rank, what, start, stop in pieces:
        sums[rank, what] = sums.get((rank, what), 0.0) + stop - start
    return max(sums, key=lambda each: sums[each])


def what_if(events, ranks, work, flight):
    """Return the seconds of the run with other seconds between calls and of messages in flight."""
    calls, joined = calls_of(events, ranks), meetings(events)
    begin = min(each.start for each in events)
    clock, before, done = [begin] * ranks, [begin] * ranks, [0] * ranks
    came = {}  # (rank, match, kind) -> when a call begins
    while any(done[rank] < len(calls[rank]) for rank in range(ranks)):
        for rank in range(ranks):
            if done[rank] == len(calls[rank]):
                continue
            call = calls[rank][done[rank]]
            start = clock[rank] + work[rank] * (call.start - before[rank])
            came[rank, call.match, call.kind] = start
            stop = start + call.stop - call.start
            if call.kind == "receive":
                sent = came.get((call.peer, call.match, "send"))
                stop = None if sent is None else max(start, sent + flight[call.peer][rank])
            elif call.kind == "collective":
                those = [came.get((r, call.match, "collective")) for r in range(ranks)]
                moves = call.stop - max(each.start for each in joined[call.match])
                stop = None if None in those else max(those) + moves
            if stop is not None:
                clock[rank], before[rank] = stop, call.stop
                done[rank] += 1
    return max(clock) - begin


# mistake -> (function, text, what stands there instead, the law that must break, its words)
MISTAKES = {
    "waits are work": (
        "account",
        'each.kind in ("forward", "backward", "update")',
        'each.stream == "compute"',
        "Account: what",
        "in which a rank waits",
    ),
    "the update is no work": (
        "account",
        '("forward", "backward", "update")',
        '("forward", "backward")',
        "Account: what",
        "Is the update not work?",
    ),
    "one sum for all ranks": (
        "account",
        "    return rows",
        "    return [tuple(sum(column) for column in zip(*rows))] * ranks",
        "Account: what",
        "the sum over the ranks",
    ),
    "shares": (
        "account",
        "rows.append((computes, both - computes, run - both))",
        "rows.append((computes / run, (both - computes) / run, 1 - both / run))",
        "Account: what",
        "Return seconds, not a share of the run",
    ),
    "overlapped communication is exposed": (
        "account",
        "both - computes, run",
        "covered(talk), run",
        "Account: communication",
        "that computation hides",
    ),
    "all rows of communication": (
        "account",
        "both - computes, run",
        "sum(each.stop - each.start for each in talk), run",
        "Account: communication",
        "that computation hides",
    ),
    "overlapping rows count twice": (
        "account",
        "both - computes, run",
        "sum(covered([*work, each]) - computes for each in talk), run",
        "Account: communication",
        "Count each second once",
    ),
    "a wait is communication": (
        "account",
        "both - computes, run",
        'covered([each for each in own if each.kind in ("wait", "bubble")]), run',
        "Account: communication",
        "whatever it waits for",
    ),
    "the run of its own": (
        "account",
        "run - both))",
        "max(each.stop for each in own) - both))",
        "Account: the rest",
        "A rank that is done waits until the last rank is done",
    ),
    "exposed twice": (
        "account",
        "run - both))",
        "run - computes))",
        "Account: the rest",
        "This contains exposed communication, which has its own column",
    ),
    "hidden time is subtracted": (
        "account",
        "run - both))",
        "run - computes - covered(talk)))",
        "Account: the rest",
        "subtracted twice",
    ),
    "the rank that waits for messages is blamed": (
        "late_senders",
        "lost[each.rank][send.rank]",
        "lost[send.rank][each.rank]",
        "Waits: for",
        "the rank that waits is blamed",
    ),
    "the receive is the wait": (
        "late_senders",
        "max(0.0, min(send.start, each.stop) - each.start)",
        "each.stop - each.start",
        "Waits: for",
        "only until its message is sent",
    ),
    "the flight is the wait": (
        "late_senders",
        "max(0.0, min(send.start, each.stop) - each.start)",
        "each.stop - send.start",
        "Waits: for",
        "in flight",
    ),
    "negative waits": (
        "late_senders",
        "max(0.0, min(send.start, each.stop) - each.start)",
        "send.start - each.start",
        "Waits: for",
        "no wait is negative",
    ),
    "the rank that waits in a collective is blamed": (
        "collective_waits",
        "lost[each.rank][last.rank]",
        "lost[last.rank][each.rank]",
        "Waits: at",
        "the rank that waits is blamed",
    ),
    "the collective is the wait": (
        "collective_waits",
        "min(last.start, each.stop) - each.start",
        "each.stop - each.start",
        "Waits: at",
        "only until the last rank has joined",
    ),
    "the first to join is late": (
        "collective_waits",
        "lost[each.rank][last.rank]",
        "lost[each.rank][min(calls, key=lambda call: call.start).rank]",
        "Waits: at",
        "The others wait for the last rank to join, not for the first",
    ),
    "for each that comes later": (
        "collective_waits",
        "            lost[each.rank][last.rank] += min(last.start, each.stop) - each.start",
        "            for other in calls:\n"
        "                lost[each.rank][other.rank] += max(0.0, other.start - each.start)",
        "Waits: at",
        "for the last rank to join, not for each rank that joins later",
    ),
    "who waits longest": (
        "culprit",
        "lost[other.rank][step][one.rank] += max(0.0, other.start - one.start - excuse)",
        "lost[one.rank][step][one.rank] += other.start - one.start",
        "Culprit: the",
        "waits the longest. For whom",
    ),
    "Its waits before the last allreduce do not count": (
        "culprit",
        "[step][one.rank] += max(0.0, other.start - one.start - excuse)",
        "[step][0] += (other.start - one.start) * (one.kind == 'collective')",
        "Culprit: the",
        "it is late because it waited itself",
    ),
    "the sum over the ranks": (
        "culprit",
        "sum(max(waits) for waits in steps)",
        "sum(sum(waits) for waits in steps)",
        "Culprit: what",
        "They wait at the same time",
    ),
    "the mean over the ranks": (
        "culprit",
        "return rank, cost[rank]",
        "return rank, sum(max(0.0, other.start - one.start) for one, other in waits"
        " if other.rank == rank) / ranks",
        "Culprit: what",
        "the mean over the ranks",
    ),
    "one step": (
        "culprit",
        "return rank, cost[rank]",
        "return rank, max(max(waits) for waits in lost[rank])",
        "Culprit: what",
        "Sum over the steps",
    ),
    "back to front": (
        "critical_path",
        "pieces[::-1]",
        "pieces",
        "Path: its pieces",
        "reverse them",
    ),
    "calls alone": (
        "critical_path",
        "if time > call.stop:",
        "if False:",
        "Path: its pieces",
        "between two calls?",
    ),
    "the wait is on the path": (
        "critical_path",
        "call.kind, waited.start, call.stop",
        "call.kind, call.start, call.stop",
        "Path: its pieces",
        "A call that waited is on the path only from the moment at which the rank that it waited for arrived",
    ),
    "it stays on its rank": (
        "critical_path",
        "waited = cause.get(id(call), call)",
        "waited = call",
        "Path: from",
        "a wait is not on the path",
    ),
    "messages are not followed": (
        "critical_path",
        "waited = cause.get(id(call), call)",
        "waited = cause.get(id(call), call) if call.kind == 'collective' else call",
        "Path: from",
        "waits in its receive until its message is sent",
    ),
    "the longest piece": (
        "dominates",
        "sums.get((rank, what), 0.0) + stop - start",
        "max(sums.get((rank, what), 0.0), stop - start)",
        "Path: what",
        "the longest single piece",
    ),
    "calls as long as before": (
        "what_if",
        "stop = None if sent is None else max(start, sent + flight[call.peer][rank])",
        "pass",
        "What if a rank",
        "a receive ends when its message arrives",
    ),
    "the whole run is scaled": (
        "what_if",
        "return max(clock) - begin",
        "return (max(each.stop for each in events) - begin) * min(work)",
        "What if a rank",
        "scales the whole run",
    ),
    "The run does not save all the time that the rank saves": (
        "what_if",
        "return max(clock) - begin",
        "return max(each.stop for each in events) - begin - max(\n"
        "        (1 - work[rank]) * sum(\n"
        "            call.start - before\n"
        "            for call, before in zip(\n"
        "                calls_of(events, ranks)[rank],\n"
        "                [begin, *(each.stop for each in calls_of(events, ranks)[rank])],\n"
        "            )\n"
        "        )\n"
        "        for rank in range(ranks)\n"
        "    )",
        "What if a rank",
        "The run does not save all the time that the rank saves",
    ),
    "messages take no time": (
        "what_if",
        "sent + flight[call.peer][rank])",
        "sent)",
        "What if nothing",
        "a network without time in flight",
    ),
}
