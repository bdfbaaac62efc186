"""Diagrams of the slides of module 02: buckets, the slowest rank, servers, sites, weak and strong scaling."""

from itertools import product

import numpy as np

from lib_dlhpc.costs import buckets
from lib_dlhpc.explore.data_parallel import here, live, sites
from lib_dlhpc.explore.data_parallel.buckets import goyal
from lib_dlhpc.explore.data_parallel.race import Race
from lib_dlhpc.explore.data_parallel.scaling import Scaling
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import of_steps, stacked
from lib_dlhpc.prediction import predict
from lib_dlhpc.schedules import price, schedule
from lib_dlhpc.spec.units import count

# B of a bucket; B of a gradient; of the links, so that two buckets meet
SIZE, ELEMENT, RATE = (25e6, 4, 0.8)
RANKS, SPREAD = 5, 0.25
FOUR, LATENCY, LINK = 4, 10e-6, 5e9  # ranks; s of a message; B/s


def overlapped() -> kit.Diagram:
    """Return the buckets of ResNet-50: backward completes them one by one, and each is exchanged after that."""
    model = goyal().model
    sizes = [size for size in buckets(model, SIZE, ELEMENT).sizes if size]
    each = 1 / len(sizes)
    end, sent = 0.0, list[kit.Bar]()
    for number, size in enumerate(sizes):
        start = max(end, (number + 1) * each)
        end = start + RATE * size / sum(sizes)
        sent.append(kit.Bar(start, end, f"{number + 1}", kit.ORANGE))
    back = [kit.Bar(k * each, (k + 1) * each, f"{k + 1}", kit.BACKWARD) for k in range(len(sizes))]
    rows = [kit.Lane("backward", back), kit.Lane("allreduce", sent)]
    return kit.lanes(rows, f"time; ResNet-50, {len(sizes)} buckets", unfolds=True)


def slowest() -> kit.Diagram:
    """Return a synchronous step of some ranks whose times vary."""
    took = np.random.default_rng(1).normal(1.0, SPREAD, RANKS)
    rows = [
        kit.Lane(
            f"rank {rank}",
            [
                kit.Bar(0, own, "computes"),
                kit.Bar(own, took.max(), "waits" if took.max() - own > 0.25 else "", kit.GRAY),
            ],
        )
        for rank, own in enumerate(took)
    ]
    return kit.lanes(rows, "time", (float(took.max()), "the allreduce begins"))


def servers() -> kit.Diagram:
    """Return workers that push gradients to servers and pull weights from them."""
    count = Race().servers
    workers = kit.across((f"worker {k}\nown images" for k in range(4)), 0.82, wide=0.22, high=0.26)
    held = {
        f"server {k}": kit.Node(
            0.3 + 0.4 * k, 0.2, f"server {k}\n1/{count} of the weights", kit.ORANGE, 0.32, 0.26
        )
        for k in range(count)
    }
    return kit.linked(workers | held, list(product(workers, held)), both=True)


def far() -> kit.Diagram:
    """Return workers that average their weights once in many local steps; not to scale: the wait is asked for."""
    count = sites.ALONE[2]
    bars = kit.in_turn([(f"{count} local steps", 1.0, kit.BLUE), ("?", 0.5, kit.ORANGE)] * 2)
    rows = [kit.Lane(f"site {k}", bars) for k in (1, 2, sites.SITES)]
    return kit.lanes(rows, "time, not to scale; orange: exchange", unfolds=True)


def alone() -> kit.Diagram:
    """Return the mean time of a step by the number of local steps."""
    link, rows = sites.LINKS[1], {}
    for steps in sites.ALONE[1:]:
        step = sites.apart(steps, link)
        waits = float(step.exposed["data"])
        name = f"{steps} local steps"
        rows[name] = {"computes": float(step.step_time) - waits, "waits": waits}
    inks = {"computes": kit.BLUE, "waits": kit.ORANGE}
    return stacked(rows, inks, "s", f"mean time of a step, {link} between sites")


def scaled() -> kit.Diagram:
    """Return the images of a GPU and of a step, on more and more GPUs."""
    setting, gpus = Scaling(), (64, 256, 1024)
    rows = [
        kit.Row("weak: a GPU has", [f"{setting.images}" for _ in gpus]),
        kit.Row("weak: a step has", [f"{setting.images * p:,}" for p in gpus]),
        kit.Row("strong: a GPU has", [f"{setting.batch // p}" for p in gpus], kit.ORANGE),
        kit.Row("strong: a step has", [f"{setting.batch:,}" for _ in gpus], kit.ORANGE),
    ]
    return kit.held([f"{p:,} GPUs" for p in gpus], rows)


def rounds() -> kit.Diagram:
    """Return what the gradients of a step pay for latency and for bytes, in many buckets and in one."""
    rows = {}
    for bucket in (min(here.BUCKETS), max(here.BUCKETS)):
        sizes = here.sizes_of_a_step(bucket)
        costs = [
            price(schedule("ring", FOUR, size // ELEMENT), LATENCY, 1 / LINK) for size in sizes
        ]
        parts = {
            "latency": sum(float(cost.latency) for cost in costs),
            "bytes": sum(float(cost.bandwidth) for cost in costs),
        }
        rows[count(len(sizes), "bucket")] = parts
    inks = {"latency": kit.ORANGE, "bytes": kit.GREEN}
    return stacked(rows, inks, "s", "ring of 4 ranks, 10 µs, 5 GB/s")


def four() -> kit.Diagram:
    """Return a step of one rank, and of four that split its batch."""
    steps = {
        count(ranks, "rank"): predict(live.experiment(live.Setting(ranks))) for ranks in (1, FOUR)
    }
    return of_steps(steps)


DIAGRAMS = {
    "Why are 256 GPUs not 256× as fast?": overlapped,
    "Who waits for whom?": slowest,
    "Why wait at all?": servers,
    "How far does it scale?": scaled,
    "What if workers are far apart?": far,
    "far_sites": far,
    "far_sites: answer": alone,
    "many_or_one: answer": rounds,
    "four_ranks: answer": four,
}
