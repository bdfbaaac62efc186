"""Findings from waits: who lets others wait, for messages and at collectives."""

from collections.abc import Iterator

import numpy as np

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.analysis.calls import EACH_FOR_ALL, Calls, Rows
from lib_dlhpc.timeline.analysis.finding import Finding, duration, place
from lib_dlhpc.timeline.analysis.significance import LEAST, judge
from lib_dlhpc.timeline.analysis.waits import AllWaits, arrivals, blame, number_of, own_doing


def late_messages(found: Calls, late: AllWaits, span: float) -> list[Finding]:
    """Return senders and receivers that let others wait for messages."""
    return [
        finding
        for of_sender in (True, False)
        for finding in _late_messages(found, late, of_sender, span)
    ]


def _late_messages(found: Calls, late: AllWaits, of_sender: bool, span: float) -> Iterator[Finding]:
    table = found.table
    kind = "late sender" if of_sender else "late receiver"
    why = (
        "for messages that it sends late" if of_sender else "which receives late what is sent to it"
    )
    waits = late.late_sender if of_sender else late.late_receiver
    for cause, parts in sorted(_guilty(found, late, of_sender, span).items()):
        rows = np.concatenate([rows for _, _, rows, _ in parts])
        direct = np.concatenate([direct for _, _, _, direct in parts])
        seconds = sum(seconds for seconds, *_ in parts)
        most, who = max((seconds, who) for seconds, who, *_ in parts)
        worst = int(waits.row[rows[np.argmax(direct)]])
        one = len(parts) == 1
        others = f"Rank {who} waits" if one else f"{len(parts)} ranks wait"
        most_of = "" if one else f"; rank {who} most, {duration(most)}"
        sentence = (
            f"{others} {duration(seconds)} for rank {cause}, {why} ({len(rows)} times{most_of})."
        )
        yield Finding(kind, cause, seconds, place(table, worst), sentence, who)


def _guilty(
    found: Calls, late: AllWaits, of_sender: bool, span: float
) -> dict[int, list[tuple[float, int, Rows, Array]]]:
    """Return for each late rank what each who waits for it waits: seconds, who, messages, s of each."""
    table, ranks = found.table, found.table.ranks
    waits = late.late_sender if of_sender else late.late_receiver
    guilty: dict[int, list[tuple[float, int, Rows, Array]]] = {}
    if waits.seconds.sum() < LEAST * span:
        return guilty
    pair = table.rank[waits.cause].astype(np.int64) * ranks + table.rank[waits.row]
    suspects = np.flatnonzero(np.bincount(pair, weights=waits.seconds) >= LEAST * span)
    if not len(suspects):
        return guilty
    # What goes the other way between two ranks tells when they last met.
    turned = suspects % ranks * ranks + suspects // ranks
    chosen = np.flatnonzero(np.isin(pair, np.concatenate([suspects, turned])))
    whose = blame(found, late, chosen, of_sender)
    order = np.argsort(pair[chosen], kind="stable")
    number = pair[chosen[order]]
    source, target = divmod(pair[chosen], ranks)
    for part in np.split(order, np.flatnonzero(np.diff(number)) + 1):
        if whose.direct[part].sum() < LEAST * span:
            continue
        cause = source[part[0]]
        others = whose.lag[(source != cause) & (target != cause) & (whose.lag > 0)]
        verdict = judge(whose.lag[part], whose.direct[part], span, others)
        if verdict is not None:
            cause, who = divmod(int(pair[chosen[part[0]]]), ranks)
            part = part[verdict.counted & (whose.direct[part] > 0)]
            entry = (verdict.seconds, who, chosen[part], whose.direct[part])
            guilty.setdefault(cause, []).append(entry)
    return guilty


def late_at_collectives(found: Calls, late: AllWaits, span: float) -> list[Finding]:
    """Return the ranks that let others wait at collectives, and for how long: by their own doing only."""
    table, waits = found.table, late.collective
    if not len(waits.row) or waits.seconds.sum() < LEAST * span:
        return []
    came = arrivals(found, late)
    blamed = _blamed(found, late, came)
    own = own_doing(found, late, blamed, came)
    group = number_of(found)[waits.row]
    waited = np.bincount(group, weights=own, minlength=found.groups)
    each = waited / np.maximum(np.bincount(group, minlength=found.groups), 1)
    guilty = np.where(blamed >= 0, table.rank[found.members[blamed]], -1)
    joined = table.start[found.members]
    usual = middle_of_others(found, joined)
    others = joined - usual
    behind = came - np.maximum(usual, mean_of_others(found, joined))
    # What a rank is late for at one call it may make up for at another: judge it call by call.
    calls = table.name[found.members[np.unique(found.group, return_index=True)[1]]]
    key = np.where(guilty >= 0, guilty * np.int64(len(table.names)) + calls, -1)
    suspects = np.bincount(key[key >= 0], weights=each[key >= 0])
    whose = table.rank[found.members] * np.int64(len(table.names)) + calls[found.group]
    findings = []
    for suspect in np.flatnonzero(suspects >= LEAST * span):
        rank, name = divmod(int(suspect), len(table.names))
        mine = np.flatnonzero(whose == suspect)
        its = found.group[mine]
        cost = np.where(guilty[its] == rank, each[its], 0.0)
        same = (calls[found.group] == name) & (whose != suspect)
        verdict = judge(behind[mine], cost, span, others[same])
        if verdict is None:
            continue
        counted = verdict.counted & (cost > 0)
        worst = int(its[np.argmax(np.where(counted, cost, -1.0))])
        row = int(waits.row[np.argmax(np.where(group == worst, own, -1.0))])
        total = float(waited[its[counted]].sum())
        sentence = (
            f"Rank {rank} is the last to join {table.names[name]} {int(counted.sum())} times: a rank that waits for it"
            f" waits {duration(verdict.seconds)} on average, all together {duration(total)}."
        )
        where = place(table, row)
        findings.append(Finding("wait at collective", rank, verdict.seconds, where, sentence))
    return findings


def _blamed(found: Calls, late: AllWaits, came: Array) -> Rows:
    """Return of each collective the place in members of the rank that causes its waits, -1: none waits.

    It is the last to come, without what others made it wait on the way: that is not its doing.
    """
    place = np.full(len(found.table), -1, np.int32)
    place[found.members] = np.arange(len(found.members))
    blamed = np.full(found.groups, -1, np.int32)
    blamed[found.group[place[late.collective.row]]] = place[late.collective.cause]
    full = found.pattern[found.group] == EACH_FOR_ALL
    top = np.full(found.groups, -np.inf)
    np.maximum.at(top, found.group[full], came[full])
    last = np.flatnonzero(full & (came == top[found.group]))
    blamed[found.group[last]] = last
    return blamed


def mean_of_others(found: Calls, joined: Array) -> Array:
    """Return for each member when the others joined on average."""
    before = joined - found.last_start[found.group]  # what is near each other adds up without loss
    sums = np.bincount(found.group, weights=before, minlength=found.groups)[found.group]
    others = np.maximum(found.sizes[found.group] - 1, 1)
    return np.asarray(joined - before + (sums - before) / others)


def middle_of_others(found: Calls, came: Array) -> Array:
    """Return for each member when the middle one of the others joined (of two middle ones, the later)."""
    order = np.lexsort((came, found.group))
    group = found.group[order]
    first = np.concatenate([[0], np.cumsum(found.sizes)])[group]
    place = np.arange(len(order)) - first
    middle = (found.sizes[group] - 1) // 2
    middle += middle >= place  # its own place in the row is left out
    middle = np.minimum(middle, found.sizes[group] - 1)
    result = np.empty(len(order))
    result[order] = came[order][first + middle]
    return result
