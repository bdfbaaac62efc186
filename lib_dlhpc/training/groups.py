"""The communicators of a hybrid run: this rank's tensor, spatial, data and pipeline group."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lib_dlhpc import layout
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.alone import Alone
from lib_dlhpc.training.check import check_ranks

KINDS = ("pipeline", "data", "spatial", "tensor")


@dataclass(frozen=True)
class Groups:
    """Where this rank stands, and a communicator for each group, in which ranks are numbered by place."""

    world: Any
    place: layout.Place
    pipeline: Any
    data: Any
    spatial: Any
    tensor: Any

    @property
    def first(self) -> bool:
        """Whether this rank speaks for those that have the same samples and the same stages."""
        return self.place.spatial == 0 and self.place.tensor == 0


@contextmanager
def groups_of(experiment: Experiment, comm: Any) -> Iterator[Groups]:
    """Give the groups of this rank, which are freed at the end; all ranks call this.

    Raises SpecError unless there is a rank for each device of the experiment.
    """
    check_ranks(experiment, comm.size)
    place = layout.place(experiment, comm.rank)
    found: dict[str, Any] = {}
    try:
        for kind in KINDS:
            ranks = layout.group(experiment, comm.rank, kind)
            if getattr(layout.sizes(experiment), kind) == 1:
                found[kind] = Alone()
            else:
                found[kind] = comm.Split(ranks[0], getattr(place, kind))
        yield Groups(comm, place, **found)
    finally:
        for group in found.values():
            if group.size > 1:
                group.Free()


@contextmanager
def doubled(comm: Any) -> Iterator[Any]:
    """Give a communicator of the same ranks whose messages never meet those of the other."""
    if comm.size == 1:
        yield comm
        return
    double = comm.Dup()
    try:
        yield double
    finally:
        double.Free()
