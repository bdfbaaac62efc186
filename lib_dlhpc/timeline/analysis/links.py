"""Findings from messages: a pair of ranks between which they take longer than between the others.

The time of a message is from when both sides were there until it was received; of one whose send did not
wait for the receiver, from when it was sent, if the receiver waited for most of its way (what had arrived
before its receive began is no evidence); of a message in flight, in a simulation, its transfer time.
What such messages take longer is taken to hold for all messages of the pair. Pairs are compared message
size by message size (within a quarter of an octave); where only one pair sends messages of a size, with
the straight line, latency plus bytes over bandwidth, that runs through the others'. One slow link, or a
rank all of whose links are slow, is reported as such; links of two kinds, as within and between nodes, are no
finding.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.analysis.calls import COMMUNICATION, Calls, Rows
from lib_dlhpc.timeline.analysis.finding import Finding, duration, place
from lib_dlhpc.timeline.analysis.significance import FEW, LEAST, judge

TIMES = 1.5  # a slow link is this much slower than the slowest of the others
WAITED = 0.8  # of the way of a message that was sent first, for its way to be known
STEPS = 4  # classes of message size an octave


@dataclass(frozen=True, eq=False)
class Transfers:
    """Messages: the row to point at, sender, receiver, bytes, and s on the way."""

    row: Rows
    source: Rows
    target: Rows
    bytes: Array
    seconds: Array
    seen: NDArray[np.bool_]  # the seconds are known


def transfers(found: Calls) -> Transfers:
    """Return how long messages were on their way."""
    table, sends, receives = found.table, found.sends, found.receives
    if len(sends):
        sent, came, got = table.start[sends], table.start[receives], table.stop[receives]
        met = (came <= sent) | (table.stop[sends] > came)  # one of them waited for the other
        seconds = np.where(met, got - np.maximum(sent, came), got - sent)
        seen = met | (got - came >= WAITED * seconds)
        size = np.maximum(table.bytes[sends], table.bytes[receives])
        return Transfers(
            receives, table.rank[sends], table.rank[receives], size, np.maximum(seconds, 0.0), seen
        )
    rows = np.zeros(0, np.int64)
    if table.source == "simulated":  # elsewhere such rows include waiting
        rows = np.flatnonzero((table.kind == COMMUNICATION) & (table.peer >= 0))
    return Transfers(
        rows,
        table.rank[rows],
        table.peer[rows],
        table.bytes[rows],
        table.stop[rows] - table.start[rows],
        np.ones(len(rows), np.bool_),
    )


def slow_links(found: Calls, span: float) -> list[Finding]:
    """Return links that are slower than the others: one pair of ranks, or those of one rank."""
    sent, ranks = transfers(found), found.table.ranks
    low, high = np.minimum(sent.source, sent.target), np.maximum(sent.source, sent.target)
    pair = low.astype(np.int64) * ranks + high
    keep = sent.seen & (low != high)
    if not keep.any():
        return []
    every = pair[low != high]
    pairs, pair = np.unique(pair[keep], return_inverse=True)
    seconds, row = sent.seconds[keep], sent.row[keep]
    if len(pairs) < 2:
        return []
    expected = _expected(pair, sent.bytes[keep], seconds, len(pairs))
    took = np.bincount(pair, weights=seconds, minlength=len(pairs))
    should = np.bincount(pair, weights=expected, minlength=len(pairs))
    slowdown = np.divide(took, should, out=np.ones(len(pairs)), where=should > 0)
    count = np.searchsorted(pairs, every)
    count = np.bincount(count[np.isin(every, pairs)], minlength=len(pairs))
    slow = _slowest(slowdown, took - should, pairs // ranks, pairs % ranks, LEAST * span)
    parts = []
    for link in slow:
        mine = pair == link
        difference = seconds[mine] - expected[mine]
        if not _persistent(difference, expected[mine], span):
            continue
        excess = float(difference.mean()) * int(count[link])
        parts.append((excess, int(link), int(row[mine][np.argmax(difference)])))
    if not parts:
        return []
    total, (_, link, worst) = sum(part[0] for part in parts), max(parts)
    one, other = int(pairs[link] // ranks), int(pairs[link] % ranks)
    messages = sum(int(count[link]) for _, link, _ in parts)
    who = f"between rank {one} and rank {other}"
    if len(parts) > 1:
        ends = [{int(pairs[link] // ranks), int(pairs[link] % ranks)} for _, link, _ in parts]
        one, other = min(set.intersection(*ends)), -1
        who = f"to and from rank {one}"
    usual = sum(float(expected[pair == part[1]].mean()) * count[part[1]] for part in parts)
    times = f"{1 + total / usual:.2g} times as long as" if usual > 0 else "longer than"
    sentence = (
        f"Messages {who} take {times} the same bytes between others:"
        f" {duration(total)} more over {messages} messages."
    )
    return [Finding("slow link", one, total, place(found.table, worst), sentence, other)]


def _persistent(difference: Array, expected: Array, span: float) -> bool:
    """Return whether a link is slow all along: a few messages that were held up make none."""
    if len(difference) < FEW:
        return bool((difference >= (2 * TIMES - 1) * expected).all())
    usual = float(np.median(difference / np.maximum(expected, 1e-300)))
    verdict = judge(difference, np.maximum(difference, 0.0), span)
    return usual >= 0.5 * (TIMES - 1) and verdict is not None and bool(verdict.counted.all())


def _expected(pair: Rows, size: Array, seconds: Array, pairs: int) -> Array:
    """Return the s that each message would take between most others."""
    step = np.where(size > 0, 1 + np.round(STEPS * np.log2(np.maximum(size, 1))), 0)
    classes, step = np.unique(step.astype(np.int64), return_inverse=True)
    cell = pair * len(classes) + step
    cells = pairs * len(classes)
    count = np.bincount(cell, minlength=cells).reshape(pairs, -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(cell, weights=seconds, minlength=cells).reshape(pairs, -1) / count
        bytes_of = np.bincount(cell, weights=size, minlength=cells).reshape(pairs, -1) / count
    there = count > 0
    usual = np.full(len(classes), np.nan)
    for k in range(len(classes)):
        if there[:, k].sum() >= 2:
            # The lower middle one: of two pairs the quicker is the usual one.
            ordered = np.sort(mean[there[:, k], k])
            usual[k] = ordered[(len(ordered) - 1) // 2]
    latency, per_byte = _line(bytes_of[there], mean[there])
    line = latency + per_byte * size
    return np.where(np.isnan(usual[step]), line, usual[step])


def _line(size: Array, seconds: Array) -> tuple[float, float]:
    """Return latency and s a byte of the line of least relative absolute errors, by reweighting."""
    if len(size) < 3 or np.ptp(size) == 0:
        return float(np.median(seconds)), 0.0
    design = np.stack([np.ones_like(size), size], axis=1)
    weight = 1.0 / np.maximum(seconds, 1e-12)
    solution = np.zeros(2)
    for _ in range(30):
        root = np.sqrt(weight)[:, None]
        solution = np.linalg.lstsq(design * root, seconds * root[:, 0], rcond=None)[0]
        miss = np.abs(design @ solution - seconds) / np.maximum(seconds, 1e-12)
        weight = 1.0 / np.maximum(seconds, 1e-12) ** 2 / np.maximum(miss, 1e-6)
    return max(float(solution[0]), 0.0), max(float(solution[1]), 0.0)


def _slowest(slowdown: Array, excess: Array, one: Rows, other: Rows, least: float) -> Rows:
    """Return the pairs above the widest gap in slowdown, if it is wide and they are one link or those of one rank."""
    order = np.argsort(-slowdown)
    ordered = slowdown[order]
    gaps = ordered[:-1] / np.maximum(ordered[1:], 1e-300)
    wide = np.flatnonzero((gaps >= TIMES) & (ordered[:-1] >= TIMES))
    if not len(wide):
        return order[:0]
    slow = order[: int(wide[np.argmax(gaps[wide])]) + 1]
    shared = set.intersection(*({int(one[k]), int(other[k])} for k in slow[:1000]))
    rest = np.setdiff1d(np.arange(len(slowdown)), slow)
    hub = any(not ((one[rest] == rank) | (other[rest] == rank)).any() for rank in shared)
    if len(slow) > 1 and not hub:
        return order[:0]
    return slow[excess[slow] >= least]
