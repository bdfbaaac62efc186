"""What a rank of a split network exchanges with its replicas beside its work: weights and gradients, in order."""

from collections.abc import Iterator, Sequence

from simpy.events import Event

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.stage import extra_reductions, share_of_experts
from lib_dlhpc.costs.stored_activations import AT_ONCE
from lib_dlhpc.layout import alike_group, group
from lib_dlhpc.simulation.hybrid_replay import Replay
from lib_dlhpc.simulation.simulation import Process


class DataStream:
    """What one rank exchanges with the other replicas in a step, one thing after another, beside its work."""

    def __init__(self, replay: Replay, rank: int, data: tuple[int, ...]) -> None:
        self.replay, self.rank, self.data = replay, rank, data
        strategy = replay.experiment.strategy
        self.size = compute.BYTES[strategy.precision]
        self.zero, self.bucket = int(strategy.zero), float(strategy.bucket)
        self.goal = "reduce_scatter" if self.zero else "allreduce"
        self.named = strategy.allreduce
        self.net = groups.group_network(replay.experiment, "data")
        self.early = bool(replay.experiment.overlap)
        self.experts = 0.0
        self.there: dict[int, Event] = {}  # what happens when the weights of a layer are
        self._to_gather: Iterator[tuple[int, float]] = iter(())  # layers and their bytes
        self._completes: dict[int, list[float]] = {}  # bytes of the buckets that a layer completes
        self._summed: Sequence[tuple[str, float]] = ()
        self._free: Event | None = None
        self._number = 0

    def gather(self, chunk: int, ahead: bool) -> None:
        """Begin to gather the weights that a pass needs."""
        if self.zero < 3 or len(self.data) == 1:
            return
        layers = self.replay.held[self.rank][chunk].model.layers
        order = range(len(layers)) if ahead else reversed(range(len(layers)))
        sizes = ((layer, layers[layer].parameters * self.size) for layer in order)
        self.there, self._to_gather = {}, ((layer, size) for layer, size in sizes if size)
        for _ in range(AT_ONCE if self.early else 1):
            self._gather_next()

    def scatter(self, chunk: int, complete: bool) -> None:
        """Get ready to exchange the gradients of a pass if it completes them."""
        model = self.replay.held[self.rank][chunk].model
        self._completes, self._summed = {}, extra_reductions(model)
        if not complete or (len(self.data) == 1 and not self._summed):
            return
        if self.replay.experiment.strategy.experts > 1:
            self.experts = share_of_experts(model)
        cut = buckets(model, self.bucket, self.size)
        for size, layer in zip(cut.sizes, cut.last_layer, strict=True):
            if size:
                self._completes.setdefault(int(layer) if self.early else 0, []).append(float(size))

    def done(self, layer: int) -> None:
        """Let go of a layer's weights, so that others have room, and exchange the gradients it completes."""
        if layer in self.there:
            self._gather_next()
        for size in self._completes.pop(layer, ()):
            self._number += 1
            self._queue(self.goal, size, f"bucket {self._number}", self._summed)

    def _gather_next(self) -> None:
        layer, size = next(self._to_gather, (-1, 0.0))
        if size:
            self.there[layer] = self._queue("allgather", size, "weights")

    def units(self) -> Iterator[float]:
        """Yield the bytes of weights that are gathered at a time after the update."""
        for part in self.replay.held[self.rank]:
            sizes = buckets(part.model, self.bucket, self.size).sizes
            yield from sizes[sizes > 0].tolist()

    def drain(self) -> Process:
        """Wait until all is exchanged."""
        if self._free is not None and not self._free.processed:
            yield self._free

    def _queue(
        self, goal: str, size: float, word: str, summed: Sequence[tuple[str, float]] = ()
    ) -> Event:
        """Exchange once all before is done; return what happens then.

        summed: groups that sum a share of it beside data.
        """
        done, before = Event(self.replay.sim.env), self._free

        def process() -> Process:
            sim = self.replay.sim
            if before is not None and not before.processed:
                yield before
            since = sim.env.now
            take_part, experiment = self.replay.collective, self.replay.experiment
            own = self.experts * size if goal == self.goal else 0.0
            yield from take_part(
                self.rank, self.data, goal, size - own, self.net, f"data {goal}", self.named
            )
            if own:
                alike = alike_group(experiment, self.rank)
                net = groups.alike_network(experiment)
                yield from take_part(self.rank, alike, goal, own, net, "alike", self.named)
            for kind, share in summed:
                members, net = (
                    group(experiment, self.rank, kind),
                    groups.group_network(experiment, kind),
                )
                yield from take_part(
                    self.rank, members, "allreduce", share * size, net, f"sum {kind}"
                )
            ends = (since, sim.env.now, round(size))
            self.replay.rows.append((self.rank, "communication", "communication", word, *ends))
            done.succeed()

        self.replay.sim.start(process())
        self._free = done
        return done
