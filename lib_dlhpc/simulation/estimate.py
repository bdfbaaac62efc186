"""How many messages a simulation as events follows: counted before it begins, from the same schedules."""

from collections import Counter
from collections.abc import Iterator
from math import inf

from lib_dlhpc.costs import groups
from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.compute import BYTES
from lib_dlhpc.costs.network import Network
from lib_dlhpc.costs.stage import extra_reductions, share_of_experts
from lib_dlhpc.layout import Part, Place, parts, rank_at, sizes
from lib_dlhpc.schedules.choice import chosen, plan
from lib_dlhpc.schedules.pipeline import Backward, Forward, Pipeline, Send
from lib_dlhpc.schedules.rounds import as_sent
from lib_dlhpc.simulation.plans import allreduce_plans
from lib_dlhpc.simulation.program import Communication, program
from lib_dlhpc.simulation.split import pipeline_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import AUTO

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
    """Yield the messages of a step of a split network: those of one replica's groups, times replicas."""
    size, pipeline = sizes(experiment), pipeline_of(experiment)
    for stage in range(size.pipeline):
        sends = sum(isinstance(each, Send) for each in pipeline.streams[stage])
        yield sends * size.data * size.spatial * size.tensor
        for space in range(size.spatial):
            count = _Count(experiment, size, first=space == 0)
            held = parts(experiment, rank_at(experiment, Place(stage, 0, space, 0)))
            for chunk, part in enumerate(held):
                yield from count.passes(part, *_passes(pipeline, stage, chunk))
                yield from count.tables(part, stage)


def _passes(pipeline: Pipeline, stage: int, chunk: int) -> tuple[int, int]:
    """Return how many forward and backward passes a rank makes through a chunk."""
    mine = [each for each in pipeline.streams[stage] if getattr(each, "chunk", -1) == chunk]
    ahead = sum(isinstance(each, Forward) for each in mine)
    return ahead, sum(isinstance(each, Backward) for each in mine)


class _Count:
    """Messages of the ranks that have one part; those of a spatial group count at its first place."""

    def __init__(self, experiment: Experiment, size: Place, first: bool) -> None:
        self.experiment, self.size, self.first = experiment, size, first
        self.known: dict[tuple[str, int, int, int], int] = {}
        strategy = experiment.strategy
        self.goal, self.named = (
            "reduce_scatter" if strategy.zero else "allreduce",
            strategy.allreduce,
        )
        self.net = groups.group_network(experiment, "data")

    def passes(self, part: Part, ahead: int, back: int) -> Iterator[int]:
        """Yield what is sent within and beside the passes through a part."""
        held = program(self.experiment, part, 1.0)
        for many, items in ((ahead, held.forward), (back, held.backward)):
            yield from (
                many * self._messages_of(item) for item in items if isinstance(item, Communication)
            )
        yield from self._data(part, ahead, back)

    def tables(self, part: Part, stage: int) -> Iterator[int]:
        """Yield what stages send that have the same table, at the first of them."""
        for stages in part.shared.values():
            ranks = {each % self.size.pipeline for each in stages}
            if len(ranks) > 1 and stage == min(ranks):
                yield len(ranks) * self.size.data * self.size.tensor

    def _messages_of(self, item: Communication) -> int:
        size, experts = self.size, int(self.experiment.strategy.experts)
        if item.group == "experts":
            net = groups.expert_network(self.experiment)
            each = self._schedule("all_to_all", experts, net, experts * item.bytes)
            return each * size.data // experts * size.tensor
        if item.group == "tensor":
            return self._meeting(item, size.tensor) * size.data
        if not self.first:
            return 0
        if item.way == "halo":
            return len(item.pairs) * size.data * size.tensor
        return self._meeting(item, size.spatial) * size.data * size.tensor

    def _meeting(self, item: Communication, ranks: int) -> int:
        net = groups.group_network(self.experiment, item.group)
        return self._schedule(groups.GOALS[item.way], ranks, net, item.bytes)

    def _data(self, part: Part, ahead: int, back: int) -> Iterator[int]:
        """Yield what replicas send: weights before passes and after the update, gradients in buckets."""
        strategy, size, model = self.experiment.strategy, self.size, part.model
        element = BYTES[strategy.precision]
        filled = buckets(model, float(strategy.bucket), element).sizes
        exchanged = back if strategy.zero > 1 else 1
        for bucket in filled[filled > 0].tolist():
            yield exchanged * self._bucket(part, bucket)
            if strategy.zero in (1, 2):
                yield self._weights(bucket) * size.tensor
        if strategy.zero == 3:
            weights = model.layer_parameters[model.layer_parameters > 0] * element
            for each in weights.tolist():
                yield (ahead + back) * self._weights(each) * size.tensor

    def _weights(self, size_of: float) -> int:
        return self._schedule("allgather", self.size.data, self.net, size_of, self.named)

    def _bucket(self, part: Part, size_of: float) -> int:
        experts, size = int(self.experiment.strategy.experts), self.size
        own = share_of_experts(part.model) * size_of if experts > 1 else 0.0
        rest = self._schedule(self.goal, size.data, self.net, size_of - own, self.named)
        total = rest * size.tensor
        if own:
            net = groups.alike_network(self.experiment)
            each = self._schedule(self.goal, size.data // experts, net, own, self.named)
            total += each * experts * size.tensor
        for kind, share in extra_reductions(part.model):
            many = size.data * (size.tensor * self.first if kind == "spatial" else 1)
            net = groups.group_network(self.experiment, kind)
            total += self._schedule("allreduce", getattr(size, kind), net, share * size_of) * many
        return total

    def _schedule(self, goal: str, ranks: int, net: Network, size: float, name: str = AUTO) -> int:
        """Return the messages of a collective; more elements than fill all blocks add none."""
        elements = min(round(size), ranks << ranks.bit_length())
        key = chosen(goal, size, net, name).name, ranks, int(net.inner.ranks), elements
        if key not in self.known:
            self.known[key] = plan(goal, size, net, ranks, elements, name).messages
        return self.known[key]
