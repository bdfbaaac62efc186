"""Routing: the experts of each position by its scores, their weights, and who is dropped where capacity is limited."""

from math import ceil
from typing import NamedTuple

import numpy as np

from lib_dlhpc.layers.base.kind import Factor
from lib_dlhpc.layers.base.saved import Array

NO_LIMIT = Factor(0.0)  # of capacity


class Routing(NamedTuple):
    """Each position's experts, most probable first; arrays of shape (batch, positions, chosen)."""

    probabilities: Array  # of all experts, (batch, positions, experts)
    experts: Array
    weights: Array  # of the experts' outputs
    stays: Array  # False where the expert is full


def routed(
    scores: Array, chosen: int, limit: int, groups: int = 1, chosen_groups: int = 0
) -> Routing:
    """Route each position to its `chosen` most probable experts; scores: (batch, positions, experts).

    Probabilities are the softmax over all experts. One chosen expert has its probability as weight (Fedus et al.
    2022, "Switch transformers", equation 2); several have theirs divided by their sum (Lepikhin et al. 2020, "GShard",
    algorithm 1), which is the softmax over the chosen scores (Jiang et al. 2024, "Mixtral of experts", section 2.1).
    A dropped expert's weight is lost, not given to the others. limit: see `full`. groups: see `in_groups`.
    """
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    open_to = p if chosen_groups in (0, groups) else in_groups(p, chosen, groups, chosen_groups)
    experts = np.argsort(-open_to, axis=-1, kind="stable")[..., :chosen].copy()
    weights = np.take_along_axis(p, experts, axis=-1)
    if chosen > 1:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return Routing(p, experts, weights, ~full(experts, scores.shape[-1], limit))


def in_groups(p: Array, chosen: int, groups: int, chosen_groups: int) -> Array:
    """Return probabilities, -1 outside of the `chosen_groups` best of `groups` equal groups of experts.

    A group is as good as the sum of its best chosen / chosen_groups experts (DeepSeek-AI 2024, "DeepSeek-V3", section
    2.1.2), at least one.
    """
    by_group = p.reshape(*p.shape[:-1], groups, -1)
    best = np.sort(by_group, axis=-1)[..., -max(1, chosen // chosen_groups) :].sum(axis=-1)
    found = np.argsort(-best, axis=-1, kind="stable")[..., :chosen_groups]
    inside = np.zeros(best.shape, np.bool_)
    np.put_along_axis(inside, found, True, axis=-1)
    return np.where(inside[..., None], by_group, -1.0).astype(p.dtype).reshape(p.shape)


def most(positions: int, experts: int, chosen: int, capacity: float) -> int:
    """Return how many positions of a sample an expert takes: `capacity` times an equal share, rounded up; 0: all.

    Source: Lepikhin et al. 2020, section 2.2, with each sample a group, so that batches, microbatches and ranks
    change nothing.
    """
    return ceil(capacity * chosen * positions / experts)


def full(experts: Array, count: int, limit: int) -> Array:
    """Return where an expert already has `limit` positions of the sample; 0: never.

    First choices of all positions go before second ones, then earlier positions before later ones (Lepikhin et al.
    2020, algorithm 1).
    """
    if not limit:
        return np.zeros(experts.shape, np.bool_)
    batch, positions, chosen = experts.shape
    queue = np.arange(batch)[:, None, None] * count + experts  # one for each sample and expert
    queue = queue.swapaxes(1, 2).ravel()
    order = np.argsort(queue, kind="stable")
    lengths = np.bincount(queue, minlength=batch * count)
    place = np.empty_like(queue)
    place[order] = np.arange(len(queue)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return (place >= limit).reshape(batch, chosen, positions).swapaxes(1, 2)


def scores_gradient(routing: Routing, dweights: Array) -> Array:
    """Return the gradient of the scores from that of the weights; which experts are chosen has none."""
    p, experts, weights, _ = routing
    dq = dweights
    if experts.shape[-1] > 1:
        total = np.take_along_axis(p, experts, axis=-1).sum(axis=-1, keepdims=True)
        dq = (dq - (dq * weights).sum(axis=-1, keepdims=True)) / total
    dp = np.zeros_like(p)
    np.put_along_axis(dp, experts, dq, axis=-1)
    return p * (dp - (dp * p).sum(axis=-1, keepdims=True))
