"""What runs under failures do, as columns: the phases that each goes through, and how all is drawn."""

from collections.abc import Mapping, Sequence
from typing import Any

from lib_dlhpc.explore.blocks.charts import Data, State, columns
from lib_dlhpc.results.palette import BUBBLE, CHECKPOINT, FORWARD, IDLE, REPEATED, SERIES
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

# Height or hatching distinguish them without color.
LOST = {"checkpoints": CHECKPOINT, "repeated work": REPEATED, "restarts": IDLE}
# Color, height in a row, and whether it is hatched.
PHASES = {
    "training": (FORWARD, 0.6, False),
    "repeated work": (REPEATED, 0.6, True),
    "checkpoint": (CHECKPOINT, 1.0, False),
    "wait": (BUBBLE, 0.6, False),
    "restart": (IDLE, 0.3, False),
}
CHECKED = {kind: look for kind, look in PHASES.items() if kind != "wait"}
CHECKED["check"] = (SERIES[3], 1.0, True)
ALIKE = {"first start": "restart"}  # drawn as that
WAYS = ("synchronous", "asynchronous", "multilevel", "incremental")
TICKS = [d * 10.0**k for k in range(-3, 1) for d in (1, 2, 5)]
TICKS += [60.0 * m for m in (0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 720)]
TICKS += [86400.0 * d for d in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)]


def phases_state(
    runs: Mapping[str, Sequence[Any]], span: float, looks: Mapping[str, Any] = PHASES
) -> State:
    """Return the columns of the chart "failures_phases": what each run did in its first `span` s."""
    bars, strikes, done = [], [], []
    for row, (run, phases) in enumerate(runs.items()):
        named = [(ALIKE.get(p.kind, p.kind), p) for p in phases if p.start < span]
        drawn = [(kind, phase) for kind, phase in named if kind in looks]
        bars += [_bar(run, kind, phase, row + 0.5, span, looks[kind]) for kind, phase in drawn]
        failed = [phase.stop for _, phase in drawn if not phase.ended and phase.stop < span]
        strikes += [{"x": x, "top": row + 0.04, "bottom": row + 0.96} for x in failed]
        sums = {
            kind: sum(min(p.stop, span) - p.start for own, p in drawn if own == kind)
            for kind in looks
        }
        parts = [f"{kind} {show(seconds, 's')}" for kind, seconds in sums.items() if seconds > 0]
        done.append(f"{run}: {', '.join(parts)}; {count(len(failed), 'failure')}")
    tick = next((step for step in TICKS if span <= 7 * step), 7 * TICKS[-1])  # about six of them
    data: Data = {
        "bars": columns(bars),
        "strikes": columns(strikes),
        "rows": {"name": list(runs), "middle": [row + 0.5 for row in range(len(runs))]},
        "room": {"x": [0.0, span], "y": [0.0, float(len(runs))], "step": [tick] * 2},
    }
    return data, f"In the first {show(span, 's')}: {'. '.join(done)}."


def _bar(run: str, kind: str, phase: Any, middle: float, span: float, look: Any) -> dict[str, Any]:
    _, high, hatched = look
    return {
        "run": run,
        "kind": kind,
        "start": phase.start,
        "stop": min(phase.stop, span),
        "top": middle - 0.4 * high,
        "bottom": middle + 0.4 * high,
        "hatched": hatched,
        "details": f"{kind}: {show(phase.stop - phase.start, 's')}",
    }
