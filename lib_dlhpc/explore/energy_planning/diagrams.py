"""Diagrams of the slides of module 10: runs in time and energy, a planner's search, slack of a pipeline."""

from itertools import pairwise

from lib_dlhpc.explore.energy_planning import best_size, budget, here, pipeline_slack, swings
from lib_dlhpc.explore.energy_planning.to_accuracy import Setting as Run
from lib_dlhpc.explore.energy_planning.to_accuracy import runs
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import stacked
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.units import format_quantity as show

EVERY = 16  # of the runs behind the front, drawn as one
SMALL = pipeline_slack.Setting(stages=4, microbatches=4)
SLOWED = 1.005  # times as long: from here on a pass counts as slowed
PASSES = {"forward": kit.FORWARD, "backward": kit.BACKWARD, "update": kit.UPDATE}


def front() -> kit.Diagram:
    """Return runs in time and energy, those of the front named at its ends."""
    own = runs(Run().target)
    rows = sorted({*own.front, *range(0, len(own.costs), EVERY)})
    ends = {"fastest": own.front[0], "knee": own.knee, "fewest joules": own.front[-1]}
    names = {rows.index(row): name for name, row in ends.items()}
    return kit.scatter(
        [tuple(own.costs[row]) for row in rows], names, "time to the target", "energy"
    )


def search() -> kit.Diagram:
    """Return what a planner has searched, and what is left."""
    own = budget.planned(next(iter(budget.NETWORKS)))
    steps = (
        (f"{own.legal:,} legal layouts", kit.BLUE),
        (f"{own.predicted:,} of them predicted", kit.VIOLET),
        (f"{len(own.ranked):,} fit in memory", kit.ORANGE),
        (f"{len(own.front):,} on the front", kit.GREEN),
    )
    nodes = {
        text: kit.Node(0.5, 0.11 + 0.26 * k, text, fill, 0.7 - 0.1 * k, 0.16)
        for k, (text, fill) in enumerate(steps)
    }
    names = list(nodes)
    return kit.linked(nodes, list(pairwise(names)))


def size() -> kit.Diagram:
    """Return the tokens that each size sees within a budget, both ends named; which of them is best is the question."""
    own = best_size.found_sizes(best_size.Setting())
    points = [
        (float(each.weights), float(tokens))
        for each, tokens in zip(own.family, own.tokens, strict=True)
    ]
    names = {
        row: best_size.count(tokens)
        for row, (_, tokens) in enumerate(points)
        if row in (0, len(points) - 1)
    }
    return kit.scatter(points, names, "weights", "tokens in three days")


def slack() -> kit.Diagram:
    """Return the passes of a pipeline: those without slack are the critical path."""
    own = pipeline_slack.found(SMALL)
    stages = 1 + max(call.place for call in own.passes)
    rows = [kit.Lane(f"stage {stage}", list[kit.Bar]()) for stage in range(stages)]
    for call, begin, takes, longer in zip(
        own.passes, own.begins, own.seconds, own.stretched, strict=True
    ):
        tight = longer / takes < SLOWED
        bar = kit.Bar(
            float(begin),
            float(begin + takes),
            "" if tight else "s",
            kit.ORANGE if tight else kit.BLUE,
        )
        rows[call.place] = kit.Lane(rows[call.place].label, [*rows[call.place].bars, bar])
    return kit.lanes(
        rows, "time; s: a pass with slack, orange: critical path", side=0.17, unfolds=True
    )


def plans() -> kit.Diagram:
    """Return the time of all steps of two plans, by what a step does."""
    setting, rows = here.Setting(), {}
    for batch in (setting.one, setting.other):
        step = predict(here.experiment(setting, batch))
        name = f"batch {batch}, {int(step.steps):,} steps"
        rows[name] = {part: float(step.steps * step.terms[part]) for part in PASSES}
    return stacked(rows, PASSES, "s", "time to 90% of MNIST", 0.28)


def swing() -> kit.Diagram:
    """Return the power of a facility while all GPUs compute, and while all wait."""
    wave = swings.found(swings.Setting()).plain
    levels = {"all compute": float(wave.watts.max()), "all wait": float(wave.watts.min())}
    rows = [kit.Lane(name, [kit.Bar(0, watts, show(watts, "W"))]) for name, watts in levels.items()]
    return kit.lanes(rows, "power of the facility")


DIAGRAMS = {
    "What is the best run for my joules and hours?": front,
    "Which layout fits my budget?": search,
    "Which model size for my GPUs and days?": size,
    "Which joules are free?": slack,
    "What does the grid see?": swing,
    "two_batches: answer": plans,
}
