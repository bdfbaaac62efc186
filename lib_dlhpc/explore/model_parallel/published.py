"""What was published of pipelines and of networks too deep for one device, beside what is predicted of them."""

from functools import cache

from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.validate import results, validate
from lib_dlhpc.spec.experiment import read_experiment

GPIPE = {  # row -> what it has
    "gpipe19-tpu-tr-k8-m1": "1 microbatch",
    "gpipe19-tpu-tr-k8-m4": "4 microbatches",
    "gpipe19-tpu-tr-k8-m32": "32 microbatches",
}


def published_table() -> Table:
    """Return the published figures, predictions and errors, as a table."""
    known = {row.id: row for row in validate(["gpipe"])}
    rows = [
        (f"GPipe, 8 stages and {what} over 2 and 1", known[name].published, known[name].predicted)
        for name, what in GPIPE.items()
    ]
    hypar = float(results()["hypar20-512"]["value"])
    rows.append(("HyPar-Flow, 512 nodes over 1", hypar, nodes_gain(512)))
    lines = [
        [what, f"{published:.3g}", f"{found:.3g}", f"{found / published - 1:+z.0%}"]
        for what, published, found in rows
    ]
    return Table([["times as fast", "published", "predicted", "error"], *lines])


@cache
def nodes_gain(nodes: int) -> float:
    """Return the predicted speedup of nodes of Frontera over one node, training ResNet-1001.

    A stage is on each of the two sockets of a node, a replica on each node.
    """
    pipeline = {"pipeline": 2, "batch": 128, "microbatches": 8, "schedule": "gpipe"}
    strategy = {"nodes": 1, **pipeline, "precision": "fp32", "optimizer": "momentum"}
    run = {"model": "resnet1001", "dataset": "imagenet", "machine": "frontera"}
    one = read_experiment({**run, "strategy": strategy, "storage": {"tier": ""}})
    many = one.set({"strategy.nodes": nodes})
    return float(predict(many).throughput / predict(one).throughput)
