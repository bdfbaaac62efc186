"""How the traces in jax/ were made: JAX 0.10.2, gloo, python make_jax.py 0 & python make_jax.py 1.

The network, batch and steps are those of make_torch.py: 784, 128, 64, 10 units, 64 samples a process, SGD.
The HLO text of the step, of which the lines with all-reduce are left, has shapes, which a trace on CPUs omits.
Of four recordings on a machine that others used, that with the shortest steps.
"""

import glob
import gzip
import json
import sys
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

rank, ranks, batch, warm, steps = int(sys.argv[1]), 2, 64, 4, 6
port = sys.argv[2] if sys.argv[2:] else "29518"
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=ranks, process_id=rank)
mesh = Mesh(jax.devices(), ("data",))
split, same = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
sizes = (784, 128, 64, 10)
Path("jax").mkdir(exist_ok=True)
chosen = np.random.default_rng(0)
weights = [
    (chosen.normal(0, m**-0.5, (m, n)).astype(np.float32), np.zeros(n, np.float32))
    for m, n in pairwise(sizes)
]
weights = jax.tree.map(lambda leaf: jax.device_put(leaf, same), weights)


def loss(weights, x, y):
    for w, b in weights[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = weights[-1]
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(x @ w + b) * jax.nn.one_hot(y, 10), axis=1))


@jax.jit
def step(weights, x, y):
    grads = jax.grad(loss)(weights, x, y)
    return jax.tree.map(lambda leaf, grad: leaf - 0.1 * grad, weights, grads)


def batches(count):
    own = np.random.default_rng(rank)
    for _ in range(count):
        with jax.profiler.TraceAnnotation("input"):
            x, y = own.normal(size=(batch, 784)).astype(np.float32), own.integers(0, 10, batch)
            both = [jax.make_array_from_process_local_data(split, part) for part in (x, y)]
        yield both


def trim(source, name):
    """Keep what the reader takes: complete events of XLA's operations and of steps, and the names of threads."""
    with gzip.open(source, "rt") as file:
        trace = json.load(file)
    kept = [
        event
        for event in trace["traceEvents"]
        if event.get("ph") == "M"
        or {"hlo_op", "step_num"} & event.get("args", {}).keys()
        or event.get("name") == "input"
    ]
    trace["traceEvents"] = kept
    with gzip.open(name, "wt", compresslevel=9) as file:
        json.dump(trace, file, separators=(",", ":"))


for x, y in batches(warm):
    weights = jax.block_until_ready(step(weights, x, y))
if rank == 0:
    with open("jax/step.hlo.txt", "w") as file:
        text = step.lower(weights, x, y).compile().as_text()
        file.writelines(line + "\n" for line in text.splitlines() if " all-reduce(" in line)
with jax.profiler.trace(f"profile{rank}", create_perfetto_trace=False):
    feed = batches(steps)
    for number in range(steps):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            x, y = next(feed)
            weights = jax.block_until_ready(step(weights, x, y))
found = glob.glob(f"profile{rank}/**/*.trace.json.gz", recursive=True)[0]
trim(found, f"jax/process{rank}.trace.json.gz")
