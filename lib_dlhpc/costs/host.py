"""A host that issues kernels one by one: no layer starts before it is issued, and the host itself may wait.

It waits where it needs what the device computes: in each layer with experts, the number of rows of each.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.distinct_layers import distinct_layers
from lib_dlhpc.spec.model import Model


@lru_cache(maxsize=1024)
def kernels(model: Model) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the kernels and collectives that the host issues for each layer, in forward and in backward.

    In a narrow format each product has a cast before it: of its input, or of the gradient of its output. In backward
    gradients of experts' biases are added one by one.
    """
    few, place = distinct_layers(model)
    return _issued(few, "forward")[place], _issued(few, "backward")[place]


def _issued(model: Model, direction: str) -> NDArray[np.float64]:
    issued: list[float] = []
    for layer in model.layers:
        traits, times = layer.traits, 1 if direction == "forward" else layer.gradients
        if traits.message:
            issued.append(layer.attributes.get(direction) not in ("none", "slice"))
        elif traits.view or traits.stand_in:
            issued.append(0)
        else:
            kernels, products = traits.issues(layer)
            added = traits.accumulates(layer) if times > 1 else 0
            issued.append(times * kernels + (products if layer.narrow else 0) + added)
    return np.array(issued, dtype=np.float64)


@lru_cache(maxsize=1024)
def waits(model: Model) -> tuple[int, ...]:
    """Return the layers, after the first, before which the host waits."""
    few, place = distinct_layers(model)
    late = np.array([layer.traits.host_waits(layer) for layer in few.layers], bool)
    return tuple((np.flatnonzero(late[place][1:]) + 1).tolist())


def dispatched(seconds: Any, issue: Any, exchanged: Any, lead: Any = 0.0) -> Any:
    """Return the seconds from the end of one layer to that of the next, in the order of a pass, last axis.

    seconds, issue: of each layer, what the device computes and what the host takes to issue it; lead: of the host, at
    the start. A layer starts once it is issued and the layers before it, with the collectives between them, are done:
    Lindley 1952.
    """
    busy, issued = seconds + exchanged, np.cumsum(issue, axis=-1) - issue - lead
    behind = np.maximum.accumulate(issued - (np.cumsum(busy, axis=-1) - busy), axis=-1)
    return seconds + np.diff(np.maximum(behind, 0.0), axis=-1, prepend=0.0)


def waited(seconds: Any, issue: Any, exchanged: Any, at: Sequence[int]) -> Any:
    """Return the seconds as of `dispatched`, where the host waits for the device before it issues some layers.

    at: these layers, ascending and not the first. The wait is over once all layers before are computed; collectives
    between may still be in progress. After it the host has no lead (NVIDIA, Megatron-LM core 0.16: of its point
    "before_ep_alltoall", MoEAlltoAllTokenDispatcher).
    """
    waiting, lead = [], np.zeros(1)
    for first, stop in pairwise((0, *at, seconds.shape[-1])):
        layer_seconds, layer_issue, sent = (
            array[..., first:stop] for array in (seconds, issue, exchanged)
        )
        waiting.append(dispatched(layer_seconds, layer_issue, sent, lead))
        done = (waiting[-1] + sent).sum(axis=-1, keepdims=True) - sent[..., -1:]
        late = np.maximum(layer_issue.sum(axis=-1, keepdims=True) - lead - done, 0.0)
        lead = sent[..., -1:] - late
    return np.concatenate(waiting, axis=-1)
