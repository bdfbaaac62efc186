"""The lesson on hybrid and spatial parallelism: what was published, and questions with numbers of one's own.

published_table()   four publications beside what the library predicts
slab_check(), share_check()   numbers to work out
"""

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.hybrid_parallel import cosmos, deep
from lib_dlhpc.explore.hybrid_parallel import map as ways
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validate import results

DEEP = {"hypar20-mem224": 224, "hypar20-mem720": 720}


def published_table() -> Table:
    """Return what was published beside what is predicted, with the error, and from what it starts."""
    lines = [["publication", "published", "predicted", "error", "the prediction starts from"]]
    for name, shown, told, found, start in comparisons():
        values = (shown.format(value) for value in (told, found))
        lines.append([name, *values, f"{found / told - 1:+.0%}", start])
    return Table(lines)


def comparisons() -> list[tuple[str, str, float, float, str]]:
    """Return (what, format, published, predicted, what the prediction starts from) of each row."""
    run = cosmos.cosmos()
    flop = float(run.global_batch * run.model.train_flop)
    there = ways.RUNS[ways.FIRST]
    seconds = ways.predicted(ways.as_published(ways.FIRST), there.tensor, there.pipeline).seconds
    told = {row: float(results()[row]["value"]) for row in (cosmos.PUBLISHED, there.row, *DEEP)}
    rows = [
        (
            "Oyama et al. 2019: cubes of 512³, 4 × 128 V100",
            "{:.3g} PFlop/s",
            told[cosmos.PUBLISHED],
            flop / float(predict(run).step_time) / 1e15,
            "the roofline of matrix products",
        ),
        (
            "Narayanan et al. 2021: GPT-3, 8 × 12 × 4 A100",
            "{:.3g} TFlop/s a GPU",
            told[there.row],
            told[there.row] * ways.published_step(ways.FIRST) / seconds,
            "their run of 39 B on 512",
        ),
    ]
    for row, side in DEEP.items():
        alone = deep.experiment_of(deep.Deep(side, each=1), 1, 1)
        rows.append(
            (
                f"Awan et al. 2020: ResNet-1001, one image of {side}²",
                "{:.3g} GB",
                told[row],
                float(predict(alone).memory_total) / 1e9,
                "the layers, activations in place",
            )
        )
    return rows


def slab_check(lesson: Lesson, seed: int | None = None) -> ipywidgets.VBox:
    """Ask each learner which share of a slab its halos are."""
    draw = np.random.default_rng(seed)
    edge, slabs = int(draw.choice([64, 128, 256])), int(draw.choice([4, 8, 16]))
    return lesson.compute(
        f"A cube of {edge}³ points is cut into {slabs} slabs; a convolution with windows of 3³ needs one plane of"
        " each neighbor. Which share of its own points does an inner slab receive, in %?",
        answer=100 * 2 * slabs / edge,
        unit="%",
        hint="Two planes of edge² points, over edge³ / slabs of its own.",
    )


def share_check(lesson: Lesson, seed: int | None = None) -> ipywidgets.VBox:
    """Ask each learner for the bubble of a way to share out GPUs."""
    draw = np.random.default_rng(seed)
    tensor, pipeline = int(draw.choice([2, 4, 8])), int(draw.choice([4, 8, 16]))
    replicas, each = int(draw.choice([4, 8])), int(draw.choice([16, 32, 64]))
    gpus, batch = tensor * pipeline * replicas, replicas * each
    return lesson.compute(
        f"{gpus:,} GPUs, tensor {tensor} × pipeline {pipeline}, the rest data; a batch of {batch:,} sequences, one"
        " a microbatch. The bubble, as a share of the computing (equal stages, 1F1B), in %?",
        answer=100 * (pipeline - 1) / each,
        unit="%",
        hint="First the replicas, then the microbatches of each; the bubble is (p - 1) / m.",
    )
