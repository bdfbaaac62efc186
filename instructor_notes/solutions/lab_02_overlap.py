"""Lab 2, make it overlap: a solution, and mistakes by name."""

import numpy as np


def step(network, loss, x, y, comm, rate, bucket=15_000):
    """The step of lab 1, with buckets of at least `bucket` gradients that leave while backward goes on."""
    samples = comm.allreduce(len(x))
    value, dy = loss(network.forward(x), y, samples)
    total = np.empty_like(network.gradients)
    requests, stop = [], len(total)

    def done(start):
        nonlocal stop
        if stop - start >= bucket or start == 0:  # the last one takes what is left
            send, receive = network.gradients[start:stop], total[start:stop]
            requests.append(comm.Iallreduce(send, receive))
            stop = start

    network.backward(dy, done)
    for request in requests:
        request.Wait()
    network.weights -= rate * total
    return comm.allreduce(value)


def buckets(leaves=lambda start, stop: (start, stop), last=True, waits="at the end"):
    """Return the solution with one thing changed. leaves: which gradients go, where start:stop are due."""

    def changed(network, loss, x, y, comm, rate, bucket=15_000):
        samples = comm.allreduce(len(x))
        value, dy = loss(network.forward(x), y, samples)
        total = np.empty_like(network.gradients)
        requests, stop = [], len(total)

        def done(start):
            nonlocal stop
            if stop - start >= bucket or (last and start == 0):
                first, end = leaves(start, stop)
                send, receive = network.gradients[first:end], total[first:end]
                requests.append(comm.Iallreduce(send, receive))
                if waits == "at once":
                    requests[-1].Wait()
                stop = start

        network.backward(dy, done)
        for request in requests[: -1 if waits == "all but one" else None]:
            request.Wait()
        network.weights -= rate * total
        return comm.allreduce(value)

    return changed


def a_bucket_a_layer(network, loss, x, y, comm, rate, bucket=15_000):
    """Every layer leaves alone, whatever size of buckets is asked for."""
    return buckets()(network, loss, x, y, comm, rate, bucket=1)


def updates_before_it_waits(network, loss, x, y, comm, rate, bucket=15_000):
    """The weights move by a buffer that no sum has filled yet."""
    samples = comm.allreduce(len(x))
    value, dy = loss(network.forward(x), y, samples)
    network.backward(dy)
    total = np.empty_like(network.gradients)
    request = comm.Iallreduce(network.gradients, total)
    network.weights -= rate * total
    request.Wait()
    return comm.allreduce(value)


def after_backward(network, loss, x, y, comm, rate, bucket=None):
    """The step of lab 1."""
    samples = comm.allreduce(len(x))
    value, dy = loss(network.forward(x), y, samples)
    network.backward(dy)
    total = np.empty_like(network.gradients)
    comm.Allreduce(network.gradients, total)
    network.weights -= rate * total
    return comm.allreduce(value)


def from_the_front(network, loss, x, y, comm, rate, bucket=None):
    """The first half of the array leaves first; backward fills the last one first."""
    samples = comm.allreduce(len(x))
    value, dy = loss(network.forward(x), y, samples)
    total, half = np.empty_like(network.gradients), len(network.gradients) // 2
    requests = []

    def done(start):
        if not requests:
            requests.append(comm.Iallreduce(network.gradients[:half], total[:half]))

    network.backward(dy, done)
    requests.append(comm.Iallreduce(network.gradients[half:], total[half:]))
    for request in requests:
        request.Wait()
    network.weights -= rate * total
    return comm.allreduce(value)


def weights_move_early(network, loss, x, y, comm, rate, bucket=None):
    """Gradients are scaled by the rate in place while they are in flight."""
    samples = comm.allreduce(len(x))
    value, dy = loss(network.forward(x), y, samples)
    total = np.empty_like(network.gradients)
    network.backward(dy)
    request = comm.Iallreduce(network.gradients, total)
    network.gradients *= rate
    request.Wait()
    network.weights -= rate * total
    return comm.allreduce(value)


# mistake -> (the law that must break, words that its finding must hold)
MISTAKES = {
    "the exchange follows backward": (
        after_backward,
        "The exchange begins before backward ends",
        "nothing has been sent when backward ends",
    ),
    "a sum is never waited for": (
        buckets(waits="all but one"),
        "Every sum is waited for",
        "still in flight",
    ),
    "every sum is waited for at once": (
        buckets(waits="at once"),
        "Backward does not stall",
        "stalls until",
    ),
    "a bucket leaves too early": (
        buckets(leaves=lambda start, stop: (max(start - 10, 0), stop)),
        "No bucket leaves before it is complete",
        "only those from",
    ),
    "the front leaves first": (
        from_the_front,
        "No bucket leaves before it is complete",
        "started with gradients 0 to",
    ),
    "what is left over stays": (buckets(last=False), "Every gradient is sent, once", "never sent"),
    "buckets overlap": (
        buckets(leaves=lambda start, stop: (start, min(stop + 10, stop + start))),
        "Every gradient is sent, once",
        "more than once",
    ),
    "the size of buckets is ignored": (
        a_bucket_a_layer,
        "Target: within 3% of the best step on your machine",
        "All but the last must hold at least",
    ),
    "the update comes before the wait": (
        updates_before_it_waits,
        "The weights are those of one rank",
        "was a sum read before it had arrived",
    ),
    "gradients are written to in flight": (
        weights_move_early,
        "No bucket leaves before it is complete",
        "written to before",
    ),
}
