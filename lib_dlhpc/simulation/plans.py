"""Which schedules carry out the gradient exchange of plain data parallelism."""

from collections.abc import Callable
from functools import lru_cache

from lib_dlhpc.costs.network import network_of
from lib_dlhpc.schedules import Schedule
from lib_dlhpc.schedules.choice import chosen, plan
from lib_dlhpc.spec.experiment import Experiment


def allreduce_plans(experiment: Experiment) -> Callable[[float], Schedule]:
    """Return what gives the schedule of a bucket's allreduce, by its bytes."""
    network, name = network_of(experiment), experiment.strategy.allreduce
    ranks, kept = int(experiment.devices), dict[str, Schedule]()

    @lru_cache
    def plan_of(size: float) -> Schedule:
        record = chosen("allreduce", size, network, name)
        if record.name not in kept:
            kept[record.name] = plan("allreduce", size, network, ranks, name=record.name)
        return kept[record.name]

    return plan_of
