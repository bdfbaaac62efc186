"""PyTorch as the peer of benchmarks/trainer.py: the same layers, one thread; needs torch and nothing of ours."""

import json
import os
import sys
import time
from itertools import pairwise
from statistics import median

import torch
from torch import nn

torch.set_num_threads(1)


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
    return {"relu": nn.ReLU, "tanh": nn.Tanh, "flatten": nn.Flatten, "add": nn.Identity}[kind]()


def stepper(net, shape, batch, classes=10):
    """Return a function that trains one step."""
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    x, y = torch.randn(batch, *shape), torch.randint(0, classes, (batch,))

    def step():
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()

    return step


def answer():
    """Answer each question on stdin with the mean CPU seconds of a step."""
    steps = {}
    for line in sys.stdin:
        asked = json.loads(line)
        key = json.dumps(asked["layers"])
        if key not in steps:
            steps[key] = stepper(Graph(asked["layers"]), asked["input"], asked["batch"])
        step = steps[key]
        step()
        count, start = 0, time.process_time()
        while time.process_time() - start < asked["spell"]:
            step()
            count += 1
        print((time.process_time() - start) / count, flush=True)


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
