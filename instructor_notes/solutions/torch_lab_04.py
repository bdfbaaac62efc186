"""Lab 4 in PyTorch: a solution, and mistakes by name. Runs where torch is installed."""

import torch
import torch.distributed as dist


class Rank:
    """One rank in a step: what it keeps of each microbatch, and what it has sent."""

    def __init__(self, stage, x, y, loss, group):
        self.stage, self.x, self.y, self.loss, self.group = stage, x, y, loss, group
        self.rank, self.last = group.rank(), group.size() - 1
        self.samples, self.value = sum(map(len, y)), 0.0
        self.kept, self.sent = {}, []
        stage.zero_grad()

    def room(self, i):
        """Return the tensor that microbatch i is received into."""
        return torch.empty(len(self.y[i]), self.stage.inputs, dtype=torch.float64)

    def send(self, tensor, peer):
        """Send, and go on; the tensor is kept until it has left."""
        self.sent.append((dist.isend(tensor, peer, self.group), tensor))

    def forward(self, i):
        """Take microbatch i through this rank."""
        given = self.x[i]
        if self.rank > 0:
            given = self.room(i)
            dist.recv(given, self.rank - 1, self.group)
            given.requires_grad_()
        outputs = self.stage(given)
        self.kept[i] = given, outputs
        if self.rank < self.last:
            self.send(outputs.detach(), self.rank + 1)

    def backward(self, i):
        """Take its gradient back through this rank."""
        given, outputs = self.kept.pop(i)
        if self.rank < self.last:
            gradient = torch.empty_like(outputs)
            dist.recv(gradient, self.rank + 1, self.group)
            outputs.backward(gradient)
        else:
            part = self.loss(outputs, self.y[i], self.samples)
            part.backward()
            self.value += part.item()
        if self.rank > 0:
            self.send(given.grad, self.rank - 1)

    def one_f_one_b(self, ahead):
        """As soon as the pipe is full, one forward and one backward in turn. ahead: microbatches that fill it."""
        many = len(self.y)
        ahead = min(ahead, many)
        for i in range(ahead):
            self.forward(i)
        for i in range(ahead, many):
            self.forward(i)
            self.backward(i - ahead)
        for i in range(many - ahead, many):
            self.backward(i)

    def wait(self):
        """Wait until all that was sent has left."""
        for request, _ in self.sent:
            request.wait()

    def descend(self, rate):
        """Move the weights against their gradients."""
        with torch.no_grad():
            for p in self.stage.parameters():
                p -= rate * p.grad


def run(own, rate, ahead=None):
    """Run a step; ahead: microbatches in the pipe."""
    own.one_f_one_b(own.last - own.rank if ahead is None else ahead)
    own.wait()
    own.descend(rate)
    return own.value


def step(stage, x, y, loss, group, rate):
    """1F1B: autograd adds up the gradients of the microbatches."""
    return run(Rank(stage, x, y, loss, group), rate)


def gpipe(stage, x, y, loss, group, rate):
    """All forward, then all backward: as short, and every activation is kept."""
    return run(Rank(stage, x, y, loss, group), rate, len(y))


def one_room(stage, x, y, loss, group, rate):
    """All microbatches are received into one tensor; autograd does not see what a receive writes."""
    own = Rank(stage, x, y, loss, group)
    room = torch.empty(max(map(len, y)), stage.inputs, dtype=torch.float64)
    own.room = lambda i: room[: len(y[i])].detach()
    return run(own, rate)


def not_waited(stage, x, y, loss, group, rate):
    """What is sent is not waited for."""
    own = Rank(stage, x, y, loss, group)
    own.wait = lambda: None
    return run(own, rate)


def mean_of_microbatches(stage, x, y, loss, group, rate):
    """The mean of the means of microbatches: right where all are even."""
    own = Rank(stage, x, y, loss, group)
    own.loss = lambda outputs, labels, _: loss(outputs, labels, len(labels) * len(y))
    return run(own, rate)


def gradients_accumulate(stage, x, y, loss, group, rate):
    """No zero_grad: the gradients of the step before are added as well."""
    before = [p.grad for p in stage.parameters()]
    own = Rank(stage, x, y, loss, group)
    for p, gradient in zip(stage.parameters(), before, strict=True):
        p.grad = gradient
    return run(own, rate)


# mistake -> (the law that must break, words that its finding must hold)
MISTAKES = {
    gpipe: ("1F1B: rank r stores at most p - r microbatches", "keeps the activations of"),
    one_room: ("A received activation is intact at its backward", "was overwritten"),
    not_waited: ("Every message is waited for", "never waited for"),
    mean_of_microbatches: ("Uneven microbatches", "Every microbatch counts equally"),
    gradients_accumulate: ("One microbatch", "a later one is not"),
}
