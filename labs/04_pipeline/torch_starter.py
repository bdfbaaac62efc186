"""Lab 4 in PyTorch: copy this file to torch_step.py, and write a step of 1F1B on several ranks.

stage          the layers of this rank, a torch.nn.Module in float64: stage(a) returns its outputs;
               stage.inputs: the numbers per sample in its input
x, y           lists of the microbatches: samples, which the first rank reads, and labels, which the last one reads
loss           loss(outputs, labels, samples): the sum over the labels at hand, divided by `samples`; a tensor
group          the process group: group.rank(), group.size(); dist.isend(tensor, rank, group) returns a handle with
               wait(), dist.recv(tensor, rank, group) fills a tensor
rate           of gradient descent on the mean loss over the whole batch

Microbatches go forward in their order. outputs.backward(gradient) runs backward through this rank's layers; a tensor
that was received is a leaf of its graph, and has a .grad only if it requires one. Return the loss on the last rank.
"""

import torch
import torch.distributed as dist


def step(stage, x, y, loss, group, rate):
    """Each microbatch finishes before the next one starts: the weights are right, but nearly all ranks are idle."""
    rank, last = group.rank(), group.size() - 1
    samples, total = sum(map(len, y)), 0.0
    stage.zero_grad()
    for i in range(len(y)):
        given = x[i]
        if rank > 0:
            given = torch.empty(len(y[i]), stage.inputs, dtype=torch.float64)
            dist.recv(given, rank - 1, group)
            given.requires_grad_()
        outputs = stage(given)
        if rank < last:
            dist.send(outputs.detach(), rank + 1, group)
            gradient = torch.empty_like(outputs)
            dist.recv(gradient, rank + 1, group)
            outputs.backward(gradient)
        else:
            value = loss(outputs, y[i], samples)
            value.backward()
            total += value.item()
        if rank > 0:
            dist.send(given.grad, rank - 1, group)
    with torch.no_grad():
        for p in stage.parameters():
            p -= rate * p.grad
    return total
