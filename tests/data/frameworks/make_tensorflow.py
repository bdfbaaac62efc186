"""How the traces in tensorflow/ were made: TensorFlow 2.21, xprof 2.24.2, python make_tensorflow.py 0 & ... 1.

The network, batch and steps are those of make_torch.py: 784, 128, 64, 10 units, 64 samples a process, SGD. The
profiler writes xplane.pb; xprof, TensorBoard's profile plugin, shows it in the Chrome form that is stored.
"""

import glob
import gzip
import json
import os
import sys
from itertools import pairwise
from pathlib import Path

rank, ranks, batch, warm, steps = int(sys.argv[1]), 2, 64, 4, 6
port = int(sys.argv[2]) if sys.argv[2:] else 29540
workers = [f"127.0.0.1:{port + each}" for each in range(ranks)]
os.environ["TF_CONFIG"] = json.dumps(
    {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
)
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from xprof.convert.raw_to_tool_data import xspace_to_tool_data  # noqa: E402

tf.config.threading.set_intra_op_parallelism_threads(1)
options = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation.RING
)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
sizes = (784, 128, 64, 10)
chosen = np.random.default_rng(0)
with strategy.scope():
    weights = [
        (
            tf.Variable(chosen.normal(0, m**-0.5, (m, n)).astype(np.float32)),
            tf.Variable(np.zeros(n, np.float32)),
        )
        for m, n in pairwise(sizes)
    ]
flat = [each for pair in weights for each in pair]


def replica(x, y):
    with tf.GradientTape() as tape:
        for w, b in weights[:-1]:
            x = tf.nn.relu(x @ w + b)
        w, b = weights[-1]
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x @ w + b)
        )
    context = tf.distribute.get_replica_context()
    grads = context.all_reduce(tf.distribute.ReduceOp.MEAN, tape.gradient(loss, flat))
    for variable, grad in zip(flat, grads, strict=True):
        variable.assign_sub(0.1 * grad)
    return loss


@tf.function
def step(x, y):
    return strategy.run(replica, args=(x, y))


own = np.random.default_rng(rank)
x = own.normal(size=(batch * (warm + steps), 784)).astype(np.float32)
y = own.integers(0, 10, len(x))
feed = iter(
    tf.data.Dataset.from_tensor_slices((x, y)).map(lambda x, y: (x * 2, y)).batch(batch).prefetch(2)
)
for _ in range(warm):
    step(*next(feed)).numpy()
tf.profiler.experimental.start(f"profile{rank}")
for number in range(steps):
    with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
        step(*next(feed)).numpy()
tf.profiler.experimental.stop()
found = glob.glob(f"profile{rank}/**/*.xplane.pb", recursive=True)
trace = json.loads(xspace_to_tool_data(found, "trace_viewer", {})[0])
# What the reader takes: names of threads, steps, operations, and the wait for tf.data.
trace["traceEvents"] = [
    event
    for event in trace["traceEvents"]
    if event.get("ph") == "M"
    or {"step_num", "long_name"} & event.get("args", {}).keys()
    or event.get("name") == "IteratorGetNextOp::DoCompute"
]
trace["traceEvents"] = [e for e in trace["traceEvents"] if not e["name"].startswith("Iterator::")]
Path("tensorflow").mkdir(exist_ok=True)
with gzip.open(f"tensorflow/worker{rank}.trace.json.gz", "wt", compresslevel=9) as file:
    json.dump(trace, file, separators=(",", ":"))
