"""Diagrams of the slides of module 07: a file system, a full cache, distributed files, bytes of a step, stripes."""

from lib_dlhpc.explore.io_bottleneck import batch, live
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import stacked
from lib_dlhpc.simulation import orders
from lib_dlhpc.spec.units import format_quantity as show

NODES, SAMPLES, ROOM = 4, 8, 4


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


def fewer_requests() -> kit.Diagram:
    """Return the requests of an epoch, one for each remote file and one for each batch."""
    rows = {
        words: {"requests": float(live.requests(batch))}
        for words, batch in (("one file\nat a time", 1), ("64 samples\nat once", 64))
    }
    return stacked(
        rows, {"requests": kit.ORANGE}, "", "requests of an epoch; each pays the latency"
    )


DIAGRAMS = kit.written(globals()) | {
    "Does a cache help?": cached,
    "What grows with the batch?": moved,
    "requests_at_once: answer": fewer_requests,
}
