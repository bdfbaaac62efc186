"""The load of the experts in a run: who chose them, what was dropped, and how unequal the ranks' shares were."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.training.groups import Groups
from lib_dlhpc.training.stage import Stage


@dataclass(frozen=True)
class ExpertLoad:
    """What a run has routed to the experts of a layer, since it began or was resumed.

    imbalance: how many positions the busiest rank that shares out the experts received in a pass, over the mean of
    these ranks; 1 is balanced. It is what strategy.expert_imbalance asks for.
    """

    layer: str
    positions: list[int]  # that chose each expert
    dropped: float  # share of all choices
    imbalance: float


def expert_load(groups: Groups, stages: Sequence[Stage]) -> list[ExpertLoad]:
    """Return the load of each layer of experts on rank 0, an empty list elsewhere; all ranks call this."""
    loads = [
        (noun.name, groups.place.data // groups.experts.size, groups.first, layer.load)
        for stage in stages
        for noun, layer in zip(stage.model.layers, stage.network.layers, strict=True)
        if noun.has_experts
    ]
    rows_of: dict[str, list[Any]] = {}
    for rows in groups.world.gather(loads) or []:
        for name, *row in rows:
            rows_of.setdefault(name, []).append(row)
    return [_of_layer(name, rows) for name, rows in rows_of.items()]


def _of_layer(name: str, rows: list[Any]) -> ExpertLoad:
    """rows: of each rank, its expert group, whether it reports for its tensor group, and its load."""
    chosen = sum(load.chosen for _, first, load in rows if first)
    dropped = sum(load.dropped for _, first, load in rows if first)
    busiest = mean = 0.0
    for group in {group for group, _, _ in rows}:
        received = np.array(
            [load.received for expert_group, _, load in rows if expert_group == group]
        )
        busiest += float(received.max(axis=0).sum())
        mean += float(received.mean(axis=0).sum())
    share = dropped / max(1, int(chosen.sum()))
    return ExpertLoad(name, chosen.tolist(), share, busiest / mean if mean else 1.0)
