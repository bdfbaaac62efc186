"""Findings from computation: ranks that have more of it than the others, round by round."""

import numpy as np

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.analysis.busy import Busy
from lib_dlhpc.timeline.analysis.calls import EACH_FOR_ALL, Calls
from lib_dlhpc.timeline.analysis.finding import Finding, Place, duration
from lib_dlhpc.timeline.analysis.significance import LEAST, above, judge
from lib_dlhpc.timeline.kinds import KINDS

WINDOWS = 32  # the most, for a trace without round boundaries
ROWS = 8  # at least of a rank in each of them, so that they are longer than what repeats
MOST_ROUNDS = 512


def imbalance(found: Calls, busy: Busy) -> list[Finding]:
    """Return the ranks that compute longer than the median of the others."""
    ranks, span = found.table.ranks, busy.end - busy.begin
    total = busy.seconds
    if ranks < 2 or total.max() - total.min() < LEAST * span:
        return []
    edges = rounds(found, busy)
    count = len(edges) - 1
    who = np.repeat(np.arange(ranks, dtype=np.int32), count)
    seconds = busy.work(who, np.tile(edges[:-1], ranks), np.tile(edges[1:], ranks))
    seconds = seconds.reshape(ranks, count)
    difference, usual = above(seconds), seconds - np.median(seconds, axis=0)
    findings = []
    for rank in np.flatnonzero(total >= np.median(total) + 0.5 * LEAST * span):
        more = float(total[rank] - np.median(np.delete(total, rank)))
        if more < LEAST * span:
            continue
        its, others = difference[rank], np.delete(usual, rank, axis=0)
        verdict = judge(its, np.maximum(its, 0.0), span, others)
        if verdict is None:
            continue
        more = more if verdict.counted.all() else min(more, verdict.seconds)
        worst = int(np.argmax(its))
        where = Place(int(rank), float(edges[worst]), float(edges[worst + 1]), "computation")
        theirs = float(total[rank]) - more
        # Of next to nothing everything is many per cent.
        share = f" ({more / theirs:.0%} more than their median)" if theirs > LEAST * span else ""
        sentence = f"Rank {rank} computes {duration(total[rank])}, {duration(more)} more than the others{share}."
        findings.append(Finding("load imbalance", int(rank), more, where, sentence))
    return findings


def rounds(found: Calls, busy: Busy) -> Array:
    """Return the times between which ranks are compared, in order, s.

    The ends of steps where there are updates, else when all ranks have joined an n-to-n collective, else
    equal parts of the trace. What is much shorter than the rest is part of its neighbor.
    """
    table, ends = found.table, np.zeros(0)
    update = np.flatnonzero(table.kind == KINDS.index("update"))
    count = np.bincount(table.rank[update], minlength=table.ranks)
    if len(update) and count.min() == count.max():
        ends = table.start[update].reshape(table.ranks, -1).max(axis=0)
    elif found.groups:
        ends = found.last_start[(found.pattern == EACH_FOR_ALL) & (found.sizes == table.ranks)]
    ends = np.sort(ends)
    if not len(ends):
        rows = np.bincount(table.rank)
        least = int(rows[rows > 0].min())
        return np.linspace(busy.begin, busy.end, min(max(least // ROWS, 1), WINDOWS) + 1)
    if len(ends) > MOST_ROUNDS:
        targets = np.linspace(busy.begin, busy.end, MOST_ROUNDS + 1)[1:]
        ends = ends[np.unique(np.minimum(np.searchsorted(ends, targets), len(ends) - 1))]
    ends = np.concatenate([[busy.begin], ends, [busy.end]])
    shortest = 0.5 * float(np.quantile(np.diff(ends), 0.75))
    kept = [ends[0]]
    for end in ends[1:]:
        if end - kept[-1] >= shortest:
            kept.append(end)
    kept[-1] = ends[-1]
    return np.array(kept)
