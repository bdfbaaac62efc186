"""Lab 6 in PyTorch: copy this file to torch_step.py, and write ZeRO 1, 2 and 3 by hand, and FSDP with one call.

zero           the level: 0 shards nothing, 1 the momentum, 2 the gradients as well, 3 the weights as well
weights        all weights, flat, in float64; their number is a multiple of the ranks
held           what `start` returned: what you keep from step to step. A step may change it
gradient       gradient(weights): the gradients of this rank's samples, flat, for all weights; parts of a mean over
               the samples of all ranks
update         update(weights, gradients, momentum): momentum and weights change in place. Call it once per step, with
               what this rank updates; the bytes that a rank holds are counted there
group          the process group; dist.all_reduce, dist.reduce_scatter_tensor, dist.all_gather_into_tensor
"""

import torch
import torch.distributed as dist


def start(zero, weights, group):
    """Return what this rank keeps. It is right for level 0."""
    return {"weights": weights, "momentum": torch.zeros_like(weights)}


def step(zero, held, gradient, update, group):
    """One step. It is right for level 0."""
    gradients = gradient(held["weights"])
    dist.all_reduce(gradients, group=group)
    update(held["weights"], gradients, held["momentum"])


def shard(network, group):
    """Return the network, sharded by torch.distributed.fsdp.fully_shard.

    DeviceMesh.from_group(group, "cpu") of torch.distributed.device_mesh is the mesh of a group.
    """
    return network
