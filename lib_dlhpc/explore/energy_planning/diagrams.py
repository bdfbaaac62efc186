"""Diagrams of the slides of module 10: runs in time and energy, a planner's search, slack of a pipeline."""

from itertools import pairwise

from lib_dlhpc.explore.energy_planning import budget
from lib_dlhpc.explore.energy_planning.pipeline_slack import Setting as Pipe
from lib_dlhpc.explore.energy_planning.pipeline_slack import found
from lib_dlhpc.explore.energy_planning.to_accuracy import Setting as Run
from lib_dlhpc.explore.energy_planning.to_accuracy import runs
from lib_dlhpc.explore.slides.diagram import (
    BLUE,
    GREEN,
    ORANGE,
    VIOLET,
    Bar,
    Diagram,
    Lane,
    Node,
    lanes,
    linked,
    scatter,
)

EVERY = 16  # of the runs behind the front, drawn as one
SMALL = Pipe(stages=4, microbatches=4)
SLOWED = 1.005  # times as long: from here on a pass counts as slowed


def front() -> Diagram:
    """Return runs in time and energy, those of the front named at its ends."""
    own = runs(Run().target)
    rows = sorted({*own.front, *range(0, len(own.costs), EVERY)})
    ends = {"fastest": own.front[0], "knee": own.knee, "fewest joules": own.front[-1]}
    names = {rows.index(row): name for name, row in ends.items()}
    return scatter([tuple(own.costs[row]) for row in rows], names, "time to the target", "energy")


def search() -> Diagram:
    """Return what a planner has searched, and what is left."""
    own = budget.planned(next(iter(budget.NETWORKS)))
    steps = (
        (f"{own.legal:,} legal layouts", BLUE),
        (f"{own.predicted:,} of them predicted", VIOLET),
        (f"{len(own.ranked):,} fit in memory", ORANGE),
        (f"{len(own.front):,} on the front", GREEN),
    )
    nodes = {
        text: Node(0.5, 0.11 + 0.26 * k, text, fill, 0.7 - 0.1 * k, 0.16)
        for k, (text, fill) in enumerate(steps)
    }
    names = list(nodes)
    return linked(nodes, list(pairwise(names)))


def slack() -> Diagram:
    """Return the passes of a pipeline: those without slack are the critical path."""
    own = found(SMALL)
    stages = 1 + max(call.place for call in own.passes)
    rows = [Lane(f"stage {stage}", list[Bar]()) for stage in range(stages)]
    for call, begin, takes, longer in zip(
        own.passes, own.begins, own.seconds, own.stretched, strict=True
    ):
        tight = longer / takes < SLOWED
        bar = Bar(
            float(begin), float(begin + takes), "" if tight else "s", ORANGE if tight else BLUE
        )
        rows[call.place] = Lane(rows[call.place].label, [*rows[call.place].bars, bar])
    return lanes(rows, "time; s: a pass with slack, orange: critical path", side=0.17)


DIAGRAMS = {
    "What is the best run for my joules and hours?": front,
    "Which layout fits my budget?": search,
    "Which joules are free?": slack,
}
