"""Tied weights: their gradients are allreduced over the stages that share them, exactly once."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lib_dlhpc import layout
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.collectives import allreduce_in_place
from lib_dlhpc.training.groups import Groups
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.stage import Stage


@dataclass
class Tied:
    """The allreduces of tied gradients after backward: this rank's gradients and communicators."""

    shared: dict[str, tuple[Any, list[Array]]]  # by the name of the swap: communicator, gradients
    recorder: Recorder

    @classmethod
    @contextmanager
    def of(
        cls, experiment: Experiment, groups: Groups, stages: list[Stage], recorder: Recorder
    ) -> Iterator["Tied"]:
        """Yield the tied weights of a run; all ranks of a pipeline call this."""
        shared: dict[str, tuple[Any, list[Array]]] = {}
        comms = []
        try:
            for name, ranks in _holders(experiment, groups).items():
                comm = _some(groups, ranks)
                gradients = [
                    stage.views(f"{name}.weight") for stage in stages if name in stage.part.shared
                ]
                if gradients:
                    shared[f"table {name}"] = comm, gradients
                if comm is not None:
                    comms.append(comm)
            yield cls(shared, recorder)
        finally:
            for comm in comms:
                comm.Free()

    def sum(self, name: str) -> None:
        """Allreduce the gradients, in place, over all stages that share the weights."""
        comm, gradients = self.shared[name]
        total = sum(gradients[1:], gradients[0].copy())
        if comm is not None:
            with self.recorder.communicates(name, total.nbytes):
                allreduce_in_place(comm, total)
        for gradient in gradients:
            gradient[...] = total


def _holders(experiment: Experiment, groups: Groups) -> dict[str, list[int]]:
    """Return the pipeline ranks that hold each tied weight."""
    depth, holders = groups.pipeline.size, dict[str, list[int]]()
    for rank in layout.group(experiment, groups.world.rank, "pipeline"):
        for part in layout.parts(experiment, rank):
            for name, stages in part.shared.items():
                holders[name] = sorted({stage % depth for stage in stages})
    return dict(sorted(holders.items()))


def _some(groups: Groups, ranks: list[int]) -> Any:
    """Return a communicator of some ranks of the pipeline; None if this rank is no member, or there is one only."""
    if len(ranks) == 1:
        return None
    from mpi4py import MPI

    here = groups.place.pipeline in ranks
    comm = groups.pipeline.Split(0 if here else MPI.UNDEFINED, groups.place.pipeline)
    return comm if here else None
