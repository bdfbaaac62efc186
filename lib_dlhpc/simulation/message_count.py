"""How many messages a simulation as events follows: counted before it begins, from the same schedules."""

from collections.abc import Iterable, Iterator
from math import inf

import numpy as np

from lib_dlhpc import parallel
from lib_dlhpc.program import Collective, Instruction, PairAllreduce, Program, calls
from lib_dlhpc.schedules.rounds import as_sent
from lib_dlhpc.simulation.ranked import Schedules
from lib_dlhpc.spec.experiment import Experiment

RATE = 20_000  # messages a second that a core follows, with contention; two to four times as many without


def messages(experiment: Experiment, steps: int, most: float = inf) -> int:
    """Return the messages of `steps` training steps; the count stops where it is above `most`.

    Exactly those that `simulate` delivers with fidelity "events" (asynchronous updates: with both).
    """
    cycle, total = int(experiment.strategy.local_steps), 0
    for sent in _cycle(experiment, most):  # up to an average of the weights, one step otherwise
        total += sent * -(-steps // cycle)
        if total > most:
            break
    return total


def _cycle(experiment: Experiment, most: float) -> Iterator[int]:
    """Yield the messages of the steps that take turns: those of each stage, then those between stages."""
    strategy = experiment.strategy
    if strategy.update == "asynchronous":  # a push and a pull each
        yield 2 * int(experiment.devices) * int(strategy.servers)
        return
    step = parallel.steps(experiment)[-1]  # those before it send nothing
    size, many, count = int(np.prod(step.shape)), step.schedule.each, _Count(step, most)
    for place, stage in enumerate(step.stages):
        sent = 0.0
        for number, chunk in enumerate(stage):
            for block, times in chunk.passes(many, step.overlaps(place, number)):
                for variant in block.variants:
                    sent += times * count.of(variant.instructions) / len(block.variants)
        sent += count.of(row[place] for row in step.end)
        yield round(size * sent)
    yield size * sum(call.target >= 0 for call in calls(step.schedule))


class _Count:
    """Messages that a rank of a group accounts for: those of a collective over the ranks that take part."""

    def __init__(self, step: Program, most: float) -> None:
        self.step, self.plans, self.most = step, Schedules(step), most
        self.known: dict[int, int] = {}

    def of(self, instructions: Iterable[Instruction | None]) -> float:
        """Return the messages of a rank's instructions."""
        sent = 0.0
        for what in instructions:
            if isinstance(what, Collective):
                sent += self._messages(what) / self.step.groups[what.group].size
            elif isinstance(what, PairAllreduce):
                sent += 1
        return sent

    def _messages(self, what: Collective) -> int:
        """Return the messages of one group; counting stops above the limit."""
        if what.pairs:
            return len(what.pairs)
        schedule, _ = self.plans.of(what)
        if id(schedule) not in self.known:
            sent = 0
            for part in schedule.rounds():
                sent += len(as_sent(part))
                if sent > self.most:
                    break
            self.known[id(schedule)] = sent
        return self.known[id(schedule)]
