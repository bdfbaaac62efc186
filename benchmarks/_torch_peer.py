"""PyTorch as the peer of benchmarks/trainer.py: the same layers, one thread; needs torch and nothing of ours.

Its best settings: attention fused, SGD fused or not, images as they are or with channels last, whichever is fastest.
"""

import json
import os
import sys
import time
from itertools import pairwise
from statistics import median

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

torch.set_num_threads(1)


class Positions(nn.Module):
    """A learned vector for each position, added."""

    def __init__(self, positions, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(positions, features))

    def forward(self, x):
        return x + self.weight


class Attention(nn.Module):
    """Causal attention of queries, keys and values side by side."""

    def __init__(self, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout

    def forward(self, x):
        batch, length, width = x.shape
        parts = x.view(batch, length, 3, self.heads, width // 3 // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        out = scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout, is_causal=True
        )
        return out.transpose(1, 2).reshape(batch, length, width // 3)


class Graph(nn.Module):
    """A network from a list of (name, kind, inputs, input shape, output shape, attributes)."""

    def __init__(self, layers):
        super().__init__()
        self.plan = [
            (name.replace(".", "_"), kind, [i.replace(".", "_") for i in inputs])
            for name, kind, inputs, *_ in layers
        ]
        self.parts = nn.ModuleDict()
        for (name, kind, _), (*_, before, after, options) in zip(self.plan, layers, strict=True):
            self.parts[name] = module(kind, before, after, options)
            if tied := options.get("tied"):
                self.parts[name].weight = self.parts[tied.replace(".", "_")].weight

    def forward(self, x):
        seen = {"input": x}
        for name, kind, inputs in self.plan:
            read = [seen[i] for i in inputs]
            seen[name] = sum(read[1:], read[0]) if kind == "add" else self.parts[name](*read)
        return seen[self.plan[-1][0]]


def module(kind, before, after, options):
    """Return the torch module of a layer."""
    dimensions = len(before) - 1
    window = {k: tuple(options[k]) for k in ("kernel", "stride", "padding") if k in options}
    if kind == "dense":
        return nn.Linear(before[-1], after[-1], bias=options["bias"])
    if kind == "conv":
        conv = {2: nn.Conv2d, 3: nn.Conv3d}[dimensions]
        shape = (before[0], after[0], window["kernel"], window["stride"], window["padding"])
        return conv(*shape, groups=options["groups"], bias=options["bias"])
    if kind in ("max_pool", "avg_pool"):
        pools = {
            "max_pool2": nn.MaxPool2d,
            "max_pool3": nn.MaxPool3d,
            "avg_pool2": nn.AvgPool2d,
            "avg_pool3": nn.AvgPool3d,
        }
        return pools[f"{kind}{dimensions}"](window["kernel"], window["stride"], window["padding"])
    if kind == "batch_norm":
        return {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[dimensions](before[0])
    if kind == "global_avg_pool":
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if kind == "embedding":
        return nn.Embedding(options["vocabulary"], options["features"])
    if kind == "position_embedding":
        return Positions(options["positions"], before[-1])
    if kind == "layer_norm":
        return nn.LayerNorm(before[-1])
    if kind == "attention":
        return Attention(options["heads"], options["dropout"])
    if kind == "dropout":
        return nn.Dropout(options["rate"]) if options["rate"] else nn.Identity()
    if kind == "gelu":
        return nn.GELU(approximate="tanh")
    return {"relu": nn.ReLU, "tanh": nn.Tanh, "flatten": nn.Flatten, "add": nn.Identity}[kind]()


def stepper(net, shape, batch, output=(10,), fused=False, last=False):
    """Return a function that trains one step. output: of a sample; of a text a class for each word. last: channels."""
    *words, classes = output
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, fused=fused)
    loss = nn.CrossEntropyLoss()
    x = torch.randint(0, classes, (batch, *shape)) if words else torch.randn(batch, *shape)
    y = torch.randint(0, classes, (batch, *words)).flatten()
    if last:
        form = {4: torch.channels_last, 5: torch.channels_last_3d}[x.dim()]
        net, x = net.to(memory_format=form), x.to(memory_format=form)

    def step():
        optimizer.zero_grad()
        loss(net(x).reshape(-1, classes), y).backward()
        optimizer.step()

    return step


def seconds(step, spell):
    """Return the mean CPU seconds of a step over a spell."""
    step()
    count, start = 0, time.process_time()
    while time.process_time() - start < spell:
        step()
        count += 1
    return (time.process_time() - start) / count


def fastest(asked):
    """Return the step with the settings that are fastest here."""
    formats = (False, True) if len(asked["input"]) in (3, 4) else (False,)
    sizes = asked["input"], asked["batch"], asked["output"]
    every = [
        stepper(Graph(asked["layers"]), *sizes, fused, last)
        for fused in (False, True)
        for last in formats
    ]
    return min(every, key=lambda step: min(seconds(step, asked["spell"]) for _ in range(2)))


def answer():
    """Answer each question on stdin with the mean CPU seconds of a step."""
    steps = {}
    for line in sys.stdin:
        asked = json.loads(line)
        key = json.dumps([asked["layers"], asked["batch"]])
        if key not in steps:
            steps[key] = fastest(asked)
        print(seconds(steps[key], asked["spell"]), flush=True)


def two_ranks(rank, port):
    """One of two ranks of DistributedDataParallel with gloo, on the MLP; rank 0 prints samples a second."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    widths = [784, 128, 127, 126, 125, 124, 123, 10]
    layers = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    net = DistributedDataParallel(nn.Sequential(*layers[:-1]))
    step = stepper(net, (784,), 128)
    for _ in range(20):
        step()
    rates = []
    for _ in range(7):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(100):
            step()
        rates.append(2 * 128 * 100 / (time.perf_counter() - start))
    if rank == 0:
        print(median(rates), flush=True)
    dist.barrier()
    os._exit(0)  # at a regular exit gloo's threads sometimes abort


if __name__ == "__main__":
    if "--two-ranks" in sys.argv:
        import socket

        import torch.multiprocessing as processes

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free = probe.getsockname()[1]
        processes.spawn(two_ranks, (free,), nprocs=2)
    else:
        answer()
