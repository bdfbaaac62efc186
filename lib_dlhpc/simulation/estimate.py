"""How many messages a simulation as events follows: counted before it begins, from the same schedules."""

from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf

import numpy as np

from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.compute import BYTES
from lib_dlhpc.parallel import program
from lib_dlhpc.program import Collective, Instruction, Program, Swap, calls
from lib_dlhpc.schedules.choice import chosen, plan
from lib_dlhpc.schedules.rounds import as_sent
from lib_dlhpc.simulation.plans import allreduce_plans
from lib_dlhpc.spec.experiment import Experiment

RATE = 20_000  # messages a second that a core follows, with contention; two to four times as many without


def messages(experiment: Experiment, steps: int, most: float = inf) -> int:
    """Return the messages of `steps` training steps; the count stops where it is above `most`.

    Exactly those that `simulate` delivers with fidelity "events" (asynchronous updates: with both).
    """
    strategy, total = experiment.strategy, 0
    steps = -(-steps // int(strategy.local_steps))  # one in so many exchanges
    for sent in _split_step(experiment) if strategy.is_split else _step(experiment):
        total += sent * steps
        if total > most:
            break
    return total


def _step(experiment: Experiment) -> Iterator[int]:
    """Yield the messages of a step in which each rank has the whole network."""
    strategy, ranks = experiment.strategy, int(experiment.devices)
    if strategy.update == "asynchronous":  # a push and a pull each
        yield 2 * ranks * int(strategy.servers)
    elif ranks > 1:
        cut = buckets(experiment.model, float(strategy.bucket), BYTES[strategy.precision])
        plan_of = allreduce_plans(experiment)
        for schedule, many in Counter(map(plan_of, cut.sizes[cut.sizes > 0].tolist())).items():
            yield from (many * len(as_sent(each)) for each in schedule.rounds())


def _split_step(experiment: Experiment) -> Iterator[int]:
    """Yield the messages of a step of a split network: those of each stage, then those between stages."""
    step = program(experiment)
    size, many, count = int(np.prod(step.shape)), step.schedule.microbatches, _Count(step)
    for place, stage in enumerate(step.stages):
        sent = 0.0
        for chunk in stage:
            passes = ((chunk.forward, many), (chunk.backward, many - 1), (chunk.last, 1))
            for block, times in passes:
                for each in block.variants:
                    sent += times * count.of(each.instructions) / len(block.variants)
        sent += count.of(row[place] for row in step.end)
        yield round(size * sent)
    yield size * sum(call.target >= 0 for call in calls(step.schedule))


class _Count:
    """Messages that a rank of a group accounts for: those of a collective over the ranks that take part."""

    def __init__(self, step: Program) -> None:
        self.step, self.bytes_of = step, step.stages[0][0].last.prices[0].bytes
        self.known: dict[tuple[str, str, str, int], int] = {}

    def of(self, instructions: Iterable[Instruction | None]) -> float:
        """Return the messages of a rank's instructions."""
        sent = 0.0
        for what in instructions:
            if isinstance(what, Collective):
                sent += self._messages(what) / self.step.groups[what.group].size
            elif isinstance(what, Swap):
                sent += 1
        return sent

    def _messages(self, what: Collective) -> int:
        """Return the messages of one group; more elements than fill all blocks add none."""
        if what.goal == "halo":
            return len(what.pairs)
        group, size = self.step.groups[what.group], self.bytes_of(what)
        size *= group.size if what.goal == "all_to_all" else 1
        elements = min(round(size), group.size << group.size.bit_length())
        name = chosen(what.goal, size, group.network, what.algorithm).name
        key = name, what.goal, what.group, elements
        if key not in self.known:
            planned = (what.goal, size, group.network, group.size, elements, what.algorithm)
            self.known[key] = plan(*planned).messages
        return self.known[key]
