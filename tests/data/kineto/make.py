"""How rank0.json and rank1.json were made: PyTorch 2.13, gloo, two processes, python make.py 0 & python make.py 1.

Rank 1 is idle for 20 ms in each of the 16 steps that are recorded. Of the traces are left: what gloo and c10d
say, steps, layers and updates; one event a line.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

rank, ranks = int(sys.argv[1]), 2
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
torch.set_num_threads(1)
dist.init_process_group("gloo", rank=rank, world_size=ranks)
layers = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
network = nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
x, y = torch.randn(64, 784), torch.randint(0, 10, (64,))


def step():
    with record_function("step"):
        if rank == 1:
            time.sleep(0.02)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()


for _ in range(3):
    step()
dist.barrier()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as trace:
    for _ in range(16):
        step()
    some = torch.ones(1000)
    if rank == 0:
        dist.send(some, 1)
    else:
        dist.recv(some, 0)
    dist.all_gather([torch.zeros(1000) for _ in range(ranks)], some)
    dist.broadcast(some, 0)
    dist.barrier()
trace.export_chrome_trace(f"rank{rank}.json")
dist.destroy_process_group()
