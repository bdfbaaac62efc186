"""What was published of hybrid and spatial parallelism, beside its prediction."""

from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.hybrid_parallel import cosmos, deep
from lib_dlhpc.explore.hybrid_parallel import map as ways
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.validate import results

DEEP = {"hypar20-mem224": 224, "hypar20-mem720": 720}


def published_table() -> Table:
    """Return what was published beside what is predicted, with the error, and from what it starts."""
    lines = [["publication", "published", "predicted", "error", "the prediction starts from"]]
    for name, shown, published, found, start in comparisons():
        values = (shown.format(value) for value in (published, found))
        lines.append([name, *values, f"{found / published - 1:+z.0%}", start])
    return Table(lines)


def comparisons() -> list[tuple[str, str, float, float, str]]:
    """Return (what, format, published, predicted, what the prediction starts from) of each row."""
    run, there = cosmos.cosmos(), ways.RUNS[ways.FIRST]
    flop = float(run.global_batch * run.model.train_flop)
    seconds = ways.predicted(ways.as_published(ways.FIRST), there.tensor, there.pipeline).seconds
    known = {row: float(results()[row]["value"]) for row in (cosmos.PUBLISHED, *DEEP)}
    cubes = (
        "Oyama et al. 2019: cubes of 512³, 4 × 128 V100",
        "{:.3g} PFlop/s",
        known[cosmos.PUBLISHED],
        flop / float(predict(run).step_time) / 1e15,
        "the roofline of matmuls",
    )
    gpt = (
        "Narayanan et al. 2021: GPT-3, 8 × 12 × 4 A100",
        "{:.3g} TFlop/s per GPU",
        there.rate,
        there.rate * ways.published_step(ways.FIRST) / seconds,
        "their run of 39 B on 512",
    )
    images = [
        (
            f"Awan et al. 2020: ResNet-1001, one image of {side}²",
            "{:.3g} GB",
            known[row],
            float(predict(deep.experiment_of(deep.Deep(side, each=1), 1, 1)).memory_total) / 1e9,
            "the layers, activations in place",
        )
        for row, side in DEEP.items()
    ]
    return [cubes, gpt, *images]
