"""The communicators of a run: tensor, spatial, data and pipeline groups, those of ZeRO, of experts and of context."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lib_dlhpc import layout
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.check import check_ranks
from lib_dlhpc.training.single_rank import SingleRank

KINDS = ("pipeline", "data", "spatial", "tensor")


@dataclass(frozen=True)
class Groups:
    """This rank's coordinates and a communicator for each group; group ranks follow the coordinates.

    shards: replicas that shard the state between them; copies: those that have the same shard. pieces: the tensor group
    once more, for what is in flight beside products.
    """

    world: Any
    place: layout.Place
    pipeline: Any
    data: Any
    spatial: Any
    tensor: Any
    pieces: Any = field(default_factory=SingleRank)
    shards: Any = field(default_factory=SingleRank)
    copies: Any = field(default_factory=SingleRank)
    experts: Any = field(default_factory=SingleRank)  # that hold all experts together
    alike: Any = field(default_factory=SingleRank)  # replicas with the same experts
    context: Any = field(default_factory=SingleRank)  # that have the same samples, each some tokens

    @property
    def reads(self) -> tuple[int, int]:
        """This rank's share of a batch, and of how many: ranks with the same samples have the same share."""
        return self.place.data // self.context.size, self.data.size // self.context.size

    @property
    def first(self) -> bool:
        """Whether this rank reports for those with the same samples, the same tokens and the same stages."""
        return self.place.spatial == 0 and self.place.tensor == 0


@contextmanager
def groups_of(experiment: Experiment, comm: Any) -> Iterator[Groups]:
    """Yield the groups of this rank and free them at the end; all ranks call this.

    Raises SpecError unless there is a rank for each device of the experiment.
    """
    check_ranks(experiment, comm.size)
    place = layout.place(experiment, comm.rank)
    comms: dict[str, Any] = {}
    try:
        for kind in KINDS:
            ranks = layout.group(experiment, comm.rank, kind)
            if getattr(layout.sizes(experiment), kind) == 1:
                comms[kind] = SingleRank()
            else:
                comms[kind] = comm.Split(ranks[0], getattr(place, kind))
        if experiment.strategy.tensor_pieces > 1 and comms["tensor"].size > 1:
            comms["pieces"] = comms["tensor"].Dup()
        many = layout.shards(experiment)
        if many > 1:
            number, member = divmod(place.data, many)
            comms["shards"] = comms["data"].Split(number, member)
            comms["copies"] = comms["data"].Split(member, number)
        if experiment.strategy.experts > 1:
            for kind, ranks_of in (("experts", layout.expert_group), ("alike", layout.alike_group)):
                ranks = ranks_of(experiment, comm.rank)
                comms[kind] = comm.Split(ranks[0], ranks.index(comm.rank))
        if experiment.strategy.context > 1:
            ranks = layout.context_group(experiment, comm.rank)
            comms["context"] = comm.Split(ranks[0], ranks.index(comm.rank))
        yield Groups(comm, place, **comms)
    finally:
        for group in comms.values():
            if not isinstance(group, SingleRank):
                group.Free()


@contextmanager
def duplicated(comm: Any) -> Iterator[Any]:
    """Yield a duplicate of a communicator, so that messages of both never match."""
    if comm.size == 1:
        yield comm
        return
    duplicate = comm.Dup()
    try:
        yield duplicate
    finally:
        duplicate.Free()
