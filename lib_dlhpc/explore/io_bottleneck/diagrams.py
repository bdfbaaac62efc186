"""Diagrams of the slides of module 07: a file system, a full cache, distributed files, bytes of a step, stripes."""

from lib_dlhpc.explore.io_bottleneck import batch, live
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import stacked
from lib_dlhpc.simulation import orders
from lib_dlhpc.spec.units import format_quantity as show

NODES, SAMPLES, ROOM = 4, 8, 4


def files() -> kit.Diagram:
    """Return what nodes ask of a shared file system for each file."""
    nodes = {
        f"node {k}": kit.Node(0.12 + 0.25 * k, 0.12, f"node {k}", wide=0.2) for k in range(NODES)
    }
    nodes |= {
        "meta": kit.Node(0.24, 0.82, "metadata server:\nstat, open, close", kit.ORANGE, 0.42, 0.28),
        "data": kit.Node(0.76, 0.82, "data servers:\nread", kit.GREEN, 0.42, 0.28),
    }
    links = [(f"node {k}", end) for k in range(NODES) for end in ("meta", "data")]
    return kit.linked(nodes, links)


def cached() -> kit.Diagram:
    """Return two epochs of eight samples, and which are in a cache of four when the second begins."""
    first, second = (list(map(int, order)) for order in list(orders(SAMPLES, 2))[:2])
    last = first[-ROOM:]
    rows = [
        kit.Row("epoch 1", list(map(str, first))),
        kit.Row("LRU cache, full", [""] * (SAMPLES - ROOM) + list(map(str, last)), kit.GREEN),
        kit.Row("epoch 2", list(map(str, second)), kit.ORANGE),
        kit.Row("evict which?", ["?"] * SAMPLES, kit.GRAY),
    ]
    return kit.held([f"{k + 1}." for k in range(SAMPLES)], rows)


def partitioned() -> kit.Diagram:
    """Return which files each node has on its drive, and that all have all metadata."""
    rows = [
        kit.Row("SSD", [f"files {k + 1}/{NODES}" for k in range(NODES)], kit.GREEN),
        kit.Row("memory", ["metadata of all files"] * NODES, kit.ORANGE),
        kit.Row("reads", ["any file"] * NODES, kit.BLUE),
    ]
    return kit.held(
        [f"node {k}" for k in range(NODES)], rows, "samples of other nodes, over the network"
    )


def moved() -> kit.Diagram:
    """Return what a GPU reads and sends in a step."""
    setting = batch.Setting()
    at = batch.BATCHES.index(setting.batch)
    read, sent = (show(float(each[at]), "B") for each in batch.each_device(setting))
    nodes = {
        "files": kit.Node(0.14, 0.5, "files", kit.ORANGE, 0.24, 0.3),
        "gpu": kit.Node(0.5, 0.5, f"GPU\nbatch {setting.batch}", wide=0.2, high=0.3),
        "others": kit.Node(0.86, 0.5, "other GPUs", kit.GREEN, 0.24, 0.3),
    }
    words = [
        kit.Shape(0.2, 0.1, 0.32, 0.2, f"samples: {read} a step"),
        kit.Shape(0.52, 0.72, 0.36, 0.2, f"gradients: {sent} a step"),
    ]
    return kit.linked(nodes, [("files", "gpu"), ("gpu", "others")], words)


def striped() -> kit.Diagram:
    """Return which stripes of a file are on which target, with stripe counts 1 and 4, and who writes them."""
    stripes = [str(k + 1) for k in range(NODES)]
    rows = [
        kit.Row("stripe count 1", [" ".join(stripes)] + [""] * (NODES - 1), kit.ORANGE),
        kit.Row("stripe count 4", stripes, kit.GREEN),
        kit.Row("a file per rank", [f"file of rank {k}" for k in range(NODES)], kit.BLUE),
        kit.Row("aggregators", [f"one writes {stripe}" for stripe in stripes], kit.GREEN),
    ]
    return kit.held([f"target {k}" for k in range(NODES)], rows, "stripes 1 to 4 of a checkpoint")


def fewer_requests() -> kit.Diagram:
    """Return the requests of an epoch, one for each remote file and one for each batch."""
    rows = {
        words: {"requests": float(live.requests(batch))}
        for words, batch in (("one file\nat a time", 1), ("64 samples\nat once", 64))
    }
    return stacked(
        rows, {"requests": kit.ORANGE}, "", "requests of an epoch; each pays the latency"
    )


DIAGRAMS = {
    "Why do GPUs wait for files?": files,
    "Does a cache help?": cached,
    "What do remote reads cost?": partitioned,
    "What grows with the batch?": moved,
    "How is a checkpoint written?": striped,
    "requests_at_once: answer": fewer_requests,
}
