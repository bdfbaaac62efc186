"""Diagrams of the slides of module 02: buckets, the slowest rank, parameter servers, weak and strong scaling."""

import numpy as np

from lib_dlhpc.costs import buckets
from lib_dlhpc.explore.data_parallel.buckets import goyal
from lib_dlhpc.explore.data_parallel.race import Race
from lib_dlhpc.explore.data_parallel.scaling import Scaling
from lib_dlhpc.explore.slides.diagram import (
    GRAY,
    GREEN,
    ORANGE,
    Bar,
    Diagram,
    Lane,
    Node,
    Row,
    held,
    lanes,
    linked,
)

SIZE, ELEMENT, RATE = (
    25e6,
    4,
    0.8,
)  # B of a bucket; B of a gradient; of the links, so that two buckets meet
RANKS, SPREAD = 5, 0.25


def overlapped() -> Diagram:
    """Return the buckets of ResNet-50: backward completes them one by one, and each is exchanged after that."""
    model = goyal().model
    sizes = [size for size in buckets(model, SIZE, ELEMENT).sizes if size]
    each = 1 / len(sizes)
    end, sent = 0.0, list[Bar]()
    for number, size in enumerate(sizes):
        start = max(end, (number + 1) * each)
        end = start + RATE * size / sum(sizes)
        sent.append(Bar(start, end, f"{number + 1}", ORANGE))
    back = [Bar(k * each, (k + 1) * each, f"{k + 1}", GREEN) for k in range(len(sizes))]
    rows = [Lane("backward", back), Lane("allreduce", sent)]
    return lanes(rows, f"time; ResNet-50, {len(sizes)} buckets")


def slowest() -> Diagram:
    """Return a synchronous step of some ranks whose times vary."""
    took = np.random.default_rng(1).normal(1.0, SPREAD, RANKS)
    rows = [
        Lane(
            f"rank {rank}",
            [
                Bar(0, own, "computes"),
                Bar(own, took.max(), "waits" if took.max() - own > 0.25 else "", GRAY),
            ],
        )
        for rank, own in enumerate(took)
    ]
    return lanes(rows, "time", (float(took.max()), "the allreduce begins"))


def servers() -> Diagram:
    """Return workers that push gradients to servers and pull weights from them."""
    many, count = 4, Race().servers
    nodes = {
        f"worker {k}": Node(0.13 + 0.247 * k, 0.82, f"worker {k}\nown images", wide=0.22, high=0.26)
        for k in range(many)
    }
    nodes |= {
        f"server {k}": Node(
            0.3 + 0.4 * k, 0.2, f"server {k}\n1/{count} of the weights", ORANGE, 0.32, 0.26
        )
        for k in range(count)
    }
    links = [(f"worker {k}", f"server {j}") for k in range(many) for j in range(count)]
    return linked(nodes, links, both=True)


def scaled() -> Diagram:
    """Return the images of a GPU and of a step, on more and more GPUs."""
    setting, gpus = Scaling(), (64, 256, 1024)
    rows = [
        Row("weak: a GPU has", [f"{setting.images}" for _ in gpus]),
        Row("weak: a step has", [f"{setting.images * p:,}" for p in gpus]),
        Row("strong: a GPU has", [f"{setting.batch // p}" for p in gpus], ORANGE),
        Row("strong: a step has", [f"{setting.batch:,}" for _ in gpus], ORANGE),
    ]
    return held([f"{p:,} GPUs" for p in gpus], rows)


DIAGRAMS = {
    "Why are 256 GPUs not 256× as fast?": overlapped,
    "Who waits for whom?": slowest,
    "Why wait at all?": servers,
    "How far does it scale?": scaled,
}
