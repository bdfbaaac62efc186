"""Lab 1, write your own data-parallel step: a solution, and mistakes by name."""

import numpy as np


def step(network, loss, x, y, comm, rate):
    """One step of gradient descent with the samples of all ranks; return the mean loss over all of them."""
    samples = comm.allreduce(len(x))
    value, dy = loss(network.forward(x), y, samples)  # a rank's share of the mean over all samples
    network.backward(dy)
    total = np.empty_like(network.gradients)
    comm.Allreduce(network.gradients, total)
    network.weights -= rate * total
    return comm.allreduce(value)


def nothing_exchanged(network, loss, x, y, comm, rate):
    """What the starter does."""
    value, dy = loss(network.forward(x), y, len(x))
    network.backward(dy)
    network.weights -= rate * network.gradients
    return value


def mean_of_shares(network, loss, x, y, comm, rate):
    """The loss has divided by all samples; the ranks are divided by once more."""
    samples = comm.allreduce(len(x))
    value, dy = loss(network.forward(x), y, samples)
    network.backward(dy)
    total = np.empty_like(network.gradients)
    comm.Allreduce(network.gradients, total)
    network.weights -= rate * total / comm.size
    return comm.allreduce(value)


def sum_of_means(network, loss, x, y, comm, rate):
    """Each rank takes the mean over its own samples."""
    value, dy = loss(network.forward(x), y, len(x))
    network.backward(dy)
    total = np.empty_like(network.gradients)
    comm.Allreduce(network.gradients, total)
    network.weights -= rate * total
    return comm.allreduce(value) / comm.size


def mean_of_means(network, loss, x, y, comm, rate):
    """Right where all shares are even, and only there."""
    value, dy = loss(network.forward(x), y, len(x))
    network.backward(dy)
    total = np.empty_like(network.gradients)
    comm.Allreduce(network.gradients, total)
    network.weights -= rate * total / comm.size
    return comm.allreduce(value) / comm.size


def first_rank_leads(network, loss, x, y, comm, rate):
    """All replicas agree: on the gradient of rank 0."""
    samples = comm.allreduce(len(x))
    value, dy = loss(network.forward(x), y, samples)
    network.backward(dy)
    comm.Bcast(network.gradients)
    network.weights -= rate * network.gradients
    return comm.allreduce(value)


def idle_ranks_leave(network, loss, x, y, comm, rate):
    """A rank without samples has nothing to add, and goes."""
    if len(x) == 0:
        return 0.0
    return step(network, loss, x, y, comm, rate)


def everything_gathered(network, loss, x, y, comm, rate):
    """Right, but every rank receives the gradients of all."""
    samples = comm.allreduce(len(x))
    value, dy = loss(network.forward(x), y, samples)
    network.backward(dy)
    network.weights -= rate * sum(comm.allgather(network.gradients))
    return comm.allreduce(value)


def loss_of_this_rank(network, loss, x, y, comm, rate):
    """The weights are right; what is returned is a rank's share of the loss."""
    samples = comm.allreduce(len(x))
    value, dy = loss(network.forward(x), y, samples)
    network.backward(dy)
    total = np.empty_like(network.gradients)
    comm.Allreduce(network.gradients, total)
    network.weights -= rate * total
    return value


# mistake -> (the law that must break, words that its finding must hold)
MISTAKES = {
    nothing_exchanged: ("Replicas agree", "different weights than rank 0"),
    mean_of_shares: ("Even shards", "4 times too short"),
    sum_of_means: ("Even shards", "sum of means"),
    mean_of_means: ("Uneven shards", "Every rank counts equally"),
    first_rank_leads: ("Even shards", "gradient of rank 0"),
    idle_ranks_leave: ("A rank without samples", "rank 3, which returned without it"),
    everything_gathered: ("Target: the gradients travel once", "once is enough"),
    loss_of_this_rank: ("The loss is that of the whole batch", "the mean over all samples"),
}
