"""How the traces in pytorch/ were made: PyTorch 2.13, gloo, python make_torch.py 0 & python make_torch.py 1.

The network, batch and steps are those of make_jax.py: 784, 128, 64, 10 units, 64 samples a process, SGD.
Of four recordings on a machine that others used, that with the shortest steps.
"""

import gzip
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset

rank, ranks, batch, warm, steps = int(sys.argv[1]), 2, 64, 4, 6
KEPT = ("cpu_op", "user_annotation")  # the others are calls of Python, arrows and labels
torch.manual_seed(rank)
torch.set_num_threads(1)
# They meet at a file: a port that is free now may be taken by the time that torch is imported.
dist.init_process_group("gloo", f"file://{Path.cwd()}/meeting", rank=rank, world_size=ranks)
layers = nn.Sequential(
    nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
)
network = nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
samples = batch * (warm + steps)
data = TensorDataset(torch.randn(samples, 784), torch.randint(0, 10, (samples,)))


def trim(source, name):
    """Keep the events that the reader takes, and what stands beside them."""
    with open(source) as file:
        trace = json.load(file)
    events = [
        event
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and event.get("cat") in KEPT
    ]
    for event in events:
        given = event.get("args", {})
        event["args"] = {key: given[key] for key in ("Input Dims", "Input type") if key in given}
        if not event["name"].startswith("gloo:"):
            del event["args"]
    trace["traceEvents"], trace["traceName"] = events, name
    del trace["host_name"]
    with gzip.open(name + ".gz", "wt", compresslevel=9) as file:
        json.dump(trace, file, separators=(",", ":"))


plan = schedule(wait=0, warmup=warm, active=steps, repeat=1)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=plan) as trace:
    for x, y in DataLoader(data, batch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
        trace.step()
Path("pytorch").mkdir(exist_ok=True)
trace.export_chrome_trace(f"profile{rank}.json")
trim(f"profile{rank}.json", f"pytorch/rank{rank}.json")
dist.destroy_process_group()
