"""Lab 1 in PyTorch: a solution, and mistakes by name. Runs where torch is installed."""

import torch
import torch.distributed as dist


def everywhere(number, group):
    """Return the sum of a number over all ranks."""
    total = torch.as_tensor(number, dtype=torch.float64).detach().clone()
    dist.all_reduce(total, group=group)
    return total.item()


def descend(network, rate):
    """Move the weights against their gradients."""
    with torch.no_grad():
        for p in network.parameters():
            p -= rate * p.grad


def step(network, loss, x, y, group, rate):
    """By hand: each rank divides by the samples of all, and the gradients are summed."""
    network.zero_grad()
    value = loss(network(x), y, everywhere(len(x), group))
    value.backward()
    for p in network.parameters():
        dist.all_reduce(p.grad, group=group)
    descend(network, rate)
    return everywhere(value, group)


def ddp_step(network, loss, x, y, group, rate):
    """With DDP: backward divides the sum by the ranks, so the loss is multiplied by them."""
    network.zero_grad()
    value = loss(network(x), y, everywhere(len(x), group))
    (group.size() * value).backward()
    descend(network, rate)
    return everywhere(value, group)


def gradients_accumulate(network, loss, x, y, group, rate):
    """No zero_grad: PyTorch adds to the gradients of the step before."""
    value = loss(network(x), y, everywhere(len(x), group))
    value.backward()
    for p in network.parameters():
        dist.all_reduce(p.grad, group=group)
    descend(network, rate)
    return everywhere(value, group)


def averaged(network, loss, x, y, group, rate):
    """The mean over ranks of what the loss has divided by all samples already."""
    network.zero_grad()
    value = loss(network(x), y, everywhere(len(x), group))
    value.backward()
    for p in network.parameters():
        dist.all_reduce(p.grad, group=group)
        p.grad /= group.size()
    descend(network, rate)
    return everywhere(value, group)


def mean_of_means(network, loss, x, y, group, rate):
    """Each rank takes the mean over its own samples, and counts alike; a rank without samples counts as one sample."""
    network.zero_grad()
    value = loss(network(x), y, max(len(x), 1))
    value.backward()
    for p in network.parameters():
        dist.all_reduce(p.grad, group=group)
        p.grad /= group.size()
    descend(network, rate)
    return everywhere(value, group) / group.size()


def idle_ranks_leave(network, loss, x, y, group, rate):
    """A rank without samples has nothing to add, and goes."""
    if len(x) == 0:
        return 0.0
    return step(network, loss, x, y, group, rate)


def everything_gathered(network, loss, x, y, group, rate):
    """Right, but every rank receives the gradients of all."""
    network.zero_grad()
    value = loss(network(x), y, everywhere(len(x), group))
    value.backward()
    for p in network.parameters():
        gathered = [torch.empty_like(p.grad) for _ in range(group.size())]
        dist.all_gather(gathered, p.grad, group=group)
        p.grad = sum(gathered)
    descend(network, rate)
    return everywhere(value, group)


def ddp_undivided(network, loss, x, y, group, rate):
    """DDP averages, and the loss has divided by all samples already."""
    network.zero_grad()
    value = loss(network(x), y, everywhere(len(x), group))
    value.backward()
    descend(network, rate)
    return everywhere(value, group)


def ddp_of_this_rank(network, loss, x, y, group, rate):
    """What most scripts do: the mean over the rank's own samples. Right where all shares are even."""
    network.zero_grad()
    value = loss(network(x), y, max(len(x), 1))
    value.backward()
    descend(network, rate)
    return everywhere(value, group) / group.size()


# mistake, by hand -> (the law that must break, words that its finding must hold)
MISTAKES = {
    gradients_accumulate: ("One rank alone", "What is left over from one step to the next?"),
    averaged: ("Even shards", "4 times too short"),
    mean_of_means: ("Uneven shards", "Every rank counts equally"),
    idle_ranks_leave: ("A rank without samples", "rank 3, which returned without it"),
    everything_gathered: ("Target: the gradients travel once", "once is enough"),
}
DDP_MISTAKES = {
    ddp_undivided: ("Even shards", "4 times too short"),
    ddp_of_this_rank: ("Uneven shards", "Every rank counts equally"),
}
