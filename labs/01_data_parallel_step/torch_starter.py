"""Lab 1 in PyTorch: copy this file to torch_step.py, and write the same step twice, by hand and with DDP.

network        a torch.nn.Module in float64: network(x) returns the outputs, a tensor's .backward() fills p.grad
loss           loss(outputs, y, samples): the sum over the samples in y, divided by `samples`; a tensor
x, y           the samples of this rank, and their labels
group          the process group: group.rank(), group.size(), dist.all_reduce(tensor, group=group)
rate           of gradient descent: p -= rate * gradient

The network is the same object in each step. Return the mean loss over all samples of all ranks.
"""

import torch
import torch.distributed as dist  # noqa: F401  (you will need it)


def step(network, loss, x, y, group, rate):
    """One step of gradient descent with the samples of all ranks, written by hand. It is right for one rank."""
    network.zero_grad()
    value = loss(network(x), y, len(x))
    value.backward()
    with torch.no_grad():
        for p in network.parameters():
            p -= rate * p.grad
    return value


def ddp_step(network, loss, x, y, group, rate):
    """The same, with a network that DistributedDataParallel wraps: backward averages gradients over the ranks."""
    network.zero_grad()
    value = loss(network(x), y, len(x))
    value.backward()
    with torch.no_grad():
        for p in network.parameters():
            p -= rate * p.grad
    return value
