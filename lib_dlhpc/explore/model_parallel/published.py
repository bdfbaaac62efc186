"""What was published of pipelines and of networks too deep for one device, beside what is predicted of them."""

from functools import cache

from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validate import results, validate
from lib_dlhpc.spec.experiment import Experiment, read_experiment

GPIPE = {  # row -> stages, microbatches
    "gpipe19-tpu-tr-k8-m1": (8, 1),
    "gpipe19-tpu-tr-k8-m4": (8, 4),
    "gpipe19-tpu-tr-k8-m32": (8, 32),
}
HYPAR = "hypar20-512"


def published_table() -> Table:
    """Return the published figures, predictions and errors, as a table."""
    lines = [["times as fast", "published", "predicted", "error"]]
    known = {row.id: row for row in validate(["gpipe"])}
    for name, (stages, microbatches) in GPIPE.items():
        row, many = known[name], f"{microbatches} microbatch{'es' * (microbatches > 1)}"
        what = f"GPipe, {stages} stages and {many} over 2 and 1"
        lines.append([what, *_shown(row.published, row.predicted, row.error)])
    published, predicted = float(results()[HYPAR]["value"]), nodes_gain(512)
    lines.append(
        ["HyPar-Flow, 512 nodes over 1", *_shown(published, predicted, predicted / published - 1)]
    )
    return Table(lines)


def hypar(nodes: int) -> Experiment:
    """Return ResNet-1001 on nodes of Frontera: a stage on each of the two sockets, a replica a node."""
    shared = {"nodes": nodes, "pipeline": 2, "batch": 128, "microbatches": 8, "schedule": "gpipe"}
    shared |= {"precision": "fp32", "optimizer": "momentum"}
    return read_experiment(
        {
            "model": "resnet1001",
            "dataset": "imagenet",
            "machine": "frontera",
            "storage": {"tier": ""},
            "strategy": shared,
        }
    )


@cache
def nodes_gain(nodes: int) -> float:
    """Return how many times as fast so many nodes are predicted to be as one."""
    return float(predict(hypar(nodes)).throughput / predict(hypar(1)).throughput)


def _shown(published: float, predicted: float, error: float) -> list[str]:
    return [f"{published:.3g}", f"{predicted:.3g}", f"{error:+.0%}"]
