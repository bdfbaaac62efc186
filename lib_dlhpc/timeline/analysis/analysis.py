"""analyze(timeline): the full analysis of a trace."""

from dataclasses import dataclass

import numpy as np

from lib_dlhpc.arrays import Array
from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.analysis.busy import Busy, busy
from lib_dlhpc.timeline.analysis.calls import Calls, calls
from lib_dlhpc.timeline.analysis.communication_matrix import Matrix, matrix
from lib_dlhpc.timeline.analysis.disks import slow_disks
from lib_dlhpc.timeline.analysis.efficiency import Efficiency, efficiency
from lib_dlhpc.timeline.analysis.finding import Finding
from lib_dlhpc.timeline.analysis.imbalance import imbalance
from lib_dlhpc.timeline.analysis.late import late_at_collectives, late_messages
from lib_dlhpc.timeline.analysis.links import slow_links
from lib_dlhpc.timeline.analysis.no_findings import why_nothing
from lib_dlhpc.timeline.analysis.path import path
from lib_dlhpc.timeline.analysis.regions import Regions, regions
from lib_dlhpc.timeline.analysis.waits import AllWaits, waits
from lib_dlhpc.timeline.critical_path import critical_path
from lib_dlhpc.timeline.measure import exposed
from lib_dlhpc.timeline.spans import in_order
from lib_dlhpc.timeline.table import Timeline


@dataclass(frozen=True, eq=False)
class Analysis:
    """The analysis of a trace. Seconds by rank have shape (ranks,)."""

    source: str
    ranks: int
    events: int
    span: float  # s from the first event to the last
    compute: Array  # s that each rank computes
    exposed: Array  # s that each rank communicates and does not compute
    stalled: Array  # idle s of each rank for input or a checkpoint
    waits: dict[str, Array]  # s that each rank waits, by kind
    matrix: Matrix
    regions: Regions
    efficiency: Efficiency
    path: Timeline  # the critical path
    findings: list[Finding]  # the costliest first
    nothing: str  # why there are none; "": there are

    @property
    def imbalance(self) -> float:
        """What the rank that computes most computes more than the mean, as a share of the mean."""
        mean = float(self.compute.mean())
        return float(self.compute.max()) / mean - 1 if mean > 0 else 0.0


def analyze(timeline: Timeline) -> Analysis:
    """Return the analysis of a timeline, of any engine or program. Raises SpecError where there are no events."""
    if not len(timeline):
        raise SpecError("A timeline without events: there is nothing to analyze.")
    table = in_order(timeline)
    found, when = calls(table), busy(table)
    late = waits(found, when)
    every = findings(found, when, late)
    return Analysis(
        source=table.source,
        ranks=table.ranks,
        events=len(table),
        span=when.end - when.begin,
        compute=when.seconds,
        exposed=exposed(table),
        stalled=_stalled(table),
        waits=late.per_rank,
        matrix=matrix(table),
        regions=regions(table),
        efficiency=efficiency(found, when),
        path=path(found, late) if when.calls else critical_path(table),
        findings=every,
        nothing="" if every else why_nothing(found, when, late),
    )


def findings(found: Calls, when: Busy, late: AllWaits) -> list[Finding]:
    """Return what is wrong with a run, the costliest first."""
    span = when.end - when.begin
    every = [
        *late_messages(found, late, span),
        *late_at_collectives(found, late, span),
        *imbalance(found, when),
        *slow_links(found, span),
        *slow_disks(found, span),
    ]
    order = np.argsort([-finding.seconds for finding in every], kind="stable")
    return [every[k] for k in order]


def _stalled(table: Timeline) -> Array:
    rows = table.where("compute", "input", "checkpoint")
    seconds = (table.stop - table.start)[rows]
    return np.bincount(table.rank[rows], weights=seconds, minlength=table.ranks)
