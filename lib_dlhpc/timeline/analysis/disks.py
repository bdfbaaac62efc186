"""Findings from storage: a rank whose batches or checkpoints take longer than those of the others."""

import numpy as np

from lib_dlhpc.timeline.analysis.calls import Calls
from lib_dlhpc.timeline.analysis.finding import Finding, duration, place
from lib_dlhpc.timeline.analysis.significance import LEAST, judge
from lib_dlhpc.timeline.kinds import STREAMS

TIMES = 1.25  # a slow disk takes this much longer than the others


def slow_disks(found: Calls, span: float) -> list[Finding]:
    """Return ranks that read, or write checkpoints, slowly. Without recorded reads, stalls for input count."""
    findings = _slow(found, "input", "input", "fetching batches", span)
    if not (found.table.stream == STREAMS.index("input")).any():
        findings = _slow(found, "compute", "input", "waiting for input", span)
    return findings + _slow(found, "checkpoint", "checkpoint", "writing checkpoints", span)


def _slow(found: Calls, stream: str, kind: str, what: str, span: float) -> list[Finding]:
    table = found.table
    rows = np.flatnonzero(table.where(stream, kind))
    if not len(rows):
        return []
    seconds, rank = table.stop[rows] - table.start[rows], table.rank[rows]
    count = np.bincount(rank, minlength=table.ranks)
    total = np.bincount(rank, weights=seconds, minlength=table.ranks)
    stalled = table.where("compute", kind)
    stalls = np.bincount(
        table.rank[stalled], weights=(table.stop - table.start)[stalled], minlength=table.ranks
    )
    findings = []
    who = np.flatnonzero(count)
    if stream == "compute":
        who = np.arange(table.ranks)  # a rank without rows is never idle
    mean = np.divide(total, count, out=np.zeros(table.ranks), where=count > 0)
    for one in who[total[who] >= LEAST * span]:
        others = np.delete(who, np.flatnonzero(who == one))
        if not len(others):
            continue
        usual = float(np.median(mean[others]))
        excess = float(total[one] - usual * count[one])
        if excess < LEAST * span or mean[one] < TIMES * usual:
            continue
        its, theirs = seconds[rank == one], seconds[rank != one]
        more = its - max(usual, float(mean[others].mean()))  # see `scatter.above`
        verdict = judge(more, np.maximum(its - usual, 0.0), span, theirs - usual)
        if verdict is None:
            continue
        excess = excess if verdict.counted.all() else min(excess, verdict.seconds)
        row = int(rows[rank == one][np.argmax(its)])
        sentence = (
            f"Rank {one} takes {duration(excess)} longer than the others for {what}: {duration(mean[one])} each against"
            f" {duration(usual)}; it waits for it {duration(stalls[one])}."
        )
        findings.append(Finding("slow disk", int(one), excess, place(table, row), sentence))
    return findings
