"""Lab 2 in PyTorch: a solution, and mistakes by name. Runs where torch is installed."""

import torch
import torch.distributed as dist


class Buckets:
    """Gradients that leave in buckets of at least `size` numbers."""

    def __init__(self, network, group, size):
        self.group, self.size, self.filling, self.in_flight = group, size, [], []
        for p in network.parameters():
            p.register_post_accumulate_grad_hook(self.ready)

    def ready(self, p):
        """Take a gradient that is complete; a full bucket leaves."""
        self.filling.append(p)
        if sum(each.numel() for each in self.filling) >= self.size:
            self.launch()

    def launch(self):
        """Let the bucket leave."""
        flat = torch.cat([p.grad.flatten() for p in self.filling])
        request = dist.all_reduce(flat, group=self.group, async_op=True)
        self.in_flight.append((request, flat, self.filling))
        self.filling = []

    def finish(self):
        """Let the rest leave, wait, and put the sums where the gradients were."""
        if self.filling:
            self.launch()
        for request, flat, own in self.in_flight:
            request.wait()
            for p, part in zip(own, flat.split([p.numel() for p in own]), strict=True):
                p.grad.copy_(part.view_as(p))
        self.in_flight.clear()


def attach(network, group, bucket):
    """As DDP does."""
    return Buckets(network, group, bucket).finish


class WaitsAtOnce(Buckets):
    """A bucket is waited for when it leaves."""

    def launch(self):
        super().launch()
        self.in_flight[-1][0].wait()


class RestIsLost(Buckets):
    """The last bucket is never full, and stays."""

    def finish(self):
        self.filling = []
        super().finish()


class NotCopiedBack(Buckets):
    """The sums stay in the buckets."""

    def finish(self):
        if self.filling:
            self.launch()
        for request, *_ in self.in_flight:
            request.wait()
        self.in_flight.clear()


class OneByOne(Buckets):
    """Each gradient leaves by itself, whatever the size of a bucket."""

    def __init__(self, network, group, size):
        super().__init__(network, group, 1)


class Averages(Buckets):
    """As DDP does, where the loss has divided by all samples already."""

    def launch(self):
        for p in self.filling:
            p.grad /= self.group.size()
        super().launch()


def by(kind):
    """Return `attach` for a kind of buckets."""
    return lambda network, group, bucket: kind(network, group, bucket).finish


waits_at_once, rest_is_lost, not_copied_back = by(WaitsAtOnce), by(RestIsLost), by(NotCopiedBack)
one_by_one, averages = by(OneByOne), by(Averages)

# name of a mistake -> (the law that must break, words that its finding must hold)
MISTAKES = {
    "waits_at_once": ("Backward does not stall", "When do you need the sums?"),
    "rest_is_lost": ("Every gradient is sent, once", "Which bucket is never full?"),
    "not_copied_back": ("The weights are those of one rank", "uses only its own samples"),
    "one_by_one": ("A bucket leaves as soon as it is full", "full ones would be of"),
    "averages": ("The weights are those of one rank", "4 times too short"),
}
