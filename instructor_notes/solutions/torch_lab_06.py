"""Lab 6 in PyTorch: a solution, and mistakes by name. Runs where torch is installed."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def part(tensor, group):
    """Return this rank's part of a flat tensor, as a view."""
    return tensor.chunk(group.size())[group.rank()]


def reduce_scatter(gradients, group):
    """Return this rank's part of the sum."""
    own = torch.empty_like(part(gradients, group))
    dist.reduce_scatter_tensor(own, gradients, group=group)
    return own


def all_gather(own, group):
    """Return all weights."""
    whole = own.new_empty(own.numel() * group.size())
    dist.all_gather_into_tensor(whole, own, group=group)
    return whole


def start(zero, weights, group):
    """Level 3 keeps its part of the weights: a clone, for a view would keep all of them."""
    momentum = torch.zeros_like(part(weights, group) if zero else weights)
    return {"weights": part(weights, group).clone() if zero == 3 else weights, "momentum": momentum}


def step(zero, held, gradient, update, group):
    """Each rank updates its part; what is gathered depends on the level."""
    weights = held["weights"]
    if zero == 0:
        gradients = gradient(weights)
        dist.all_reduce(gradients, group=group)
        update(weights, gradients, held["momentum"])
        return
    if zero == 3:
        update(
            weights, reduce_scatter(gradient(all_gather(weights, group)), group), held["momentum"]
        )
        return
    own = part(weights, group)
    if zero == 2:
        update(own, reduce_scatter(gradient(weights), group), held["momentum"])
    else:
        gradients = gradient(weights)
        mine = part(gradients, group)
        mine.copy_(reduce_scatter(gradients, group))
        update(own, mine, held["momentum"])
    weights.copy_(all_gather(own, group))


def shard(network, group):
    """FSDP: each layer's tensors are sharded along their rows."""
    return fully_shard(network, mesh=DeviceMesh.from_group(group, "cpu"))


def start_with_views(zero, weights, group):
    """A slice keeps the storage of all weights alive."""
    held = start(zero, weights, group)
    return held | {"weights": part(weights, group)} if zero == 3 else held


def step_keeps_gradients(zero, held, gradient, update, group):
    """Level 2 as level 1: all gradients are still there when the weights are updated."""
    step(min(zero, 1) if zero < 3 else 3, held, gradient, update, group)


def step_reduces_all(zero, held, gradient, update, group):
    """Level 1 by an allreduce, of which each rank uses a part."""
    if zero != 1:
        return step(zero, held, gradient, update, group)
    weights = held["weights"]
    gradients, own = gradient(weights), part(weights, group)
    dist.all_reduce(gradients, group=group)
    update(own, part(gradients, group), held["momentum"])
    weights.copy_(all_gather(own, group))


def step_gathers_nothing(zero, held, gradient, update, group):
    """The weights that other ranks have updated are not fetched."""
    if zero not in (1, 2):
        return step(zero, held, gradient, update, group)
    own = part(held["weights"], group)
    update(own, reduce_scatter(gradient(held["weights"]), group), held["momentum"])


def step_of_own_samples(zero, held, gradient, update, group):
    """Each rank updates its part with the gradients of its own samples."""
    if zero == 0:
        return step(zero, held, gradient, update, group)
    whole = all_gather(held["weights"], group) if zero == 3 else held["weights"]
    own = held["weights"] if zero == 3 else part(whole, group)
    update(own, part(gradient(whole), group).clone(), held["momentum"])


def unsharded(network, group):
    """Nothing is sharded, and each rank trains alone."""
    return network


# (start, step, shard) -> (the law that must break, words that its finding must hold)
MISTAKES = {
    (start_with_views, step, shard): (
        "ZeRO 3: a rank holds what the ledger says",
        "a slice is a view",
    ),
    (start, step_keeps_gradients, shard): (
        "ZeRO 2: a rank holds what the ledger says",
        "that is ZeRO 1",
    ),
    (start, step_reduces_all, shard): ("ZeRO 1: once around", "who needs the sum"),
    (start, step_gathers_nothing, shard): (
        "ZeRO 1: it trains as one rank does",
        "another rank has updated",
    ),
    (start, step_of_own_samples, shard): (
        "ZeRO 1: it trains as one rank does",
        "Which samples are these gradients from",
    ),
    (start, step, unsharded): (
        "FSDP: a rank holds what ZeRO 3 does, and trains as one rank",
        "Ranks update",
    ),
}
