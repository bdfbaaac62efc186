"""A small picture of each module's idea, as SVG, drawn from results of the engines: a function for each folder.

The first line of each is the caption of its picture on slides.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lib_dlhpc import Experiment, predict, simulate
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.schedules import price, schedule
from lib_dlhpc.serving import predict_service, read_service
from lib_dlhpc.spec import catalog
from lib_dlhpc.studies.large_batch_results import batches, mean_of, stored
from lib_dlhpc.timeline import Timeline

WIDTH, HEIGHT, EDGE = 240.0, 96.0, 12.0
Point = tuple[float, float]


def one_step() -> str:
    """A larger batch shortens the passes of a sample."""
    columns = []
    for batch in (1, 2, 4, 8, 16, 32):
        run = Experiment(
            model="resnet50", machine="dgx1-p100", strategy={"batch": batch, "devices_per_node": 1}
        )
        terms = predict(run).terms
        columns.append([(name, terms[name] / batch) for name in ("forward", "backward", "update")])
    return stacks(columns)


def allreduce() -> str:
    """Recursive doubling is faster for short messages, the ring for long ones."""
    sizes = np.geomspace(1e3, 1e8, 24)
    alpha, beta = 5e-6, 1 / 12.5e9
    times = {
        "tensor": [
            price(schedule("recursive_doubling", 16, 1 << 10), alpha, beta * n / 4096).total
            for n in sizes
        ],
        "gradient": [
            price(schedule("ring", 16, 1 << 10), alpha, beta * n / 4096).total for n in sizes
        ],
    }
    return curves(
        {name: list(zip(np.log(sizes), np.log(own), strict=True)) for name, own in times.items()}
    )


def data_parallel() -> str:
    """Speedup falls behind the ideal."""
    run = replay("goyal-2017").experiment.set({"machine.nodes": 1024})
    nodes = 2 ** np.arange(11)
    p = predict(run.set({"strategy.nodes": nodes, "machine.inter_node.bandwidth": 10e9 / 8}))
    speed = nodes * np.asarray(p.compute) / np.asarray(p.step_time)
    return curves(
        {
            "idle": list(zip(nodes, nodes, strict=True)),
            "backward": list(zip(nodes, speed, strict=True)),
        }
    )


def large_batch() -> str:
    """Accuracy falls as the batch grows; LARS holds it longer."""
    table = stored()
    found = {}
    for rule, color in (("linear", "gradient"), ("lars", "backward")):
        found[color] = [
            (float(np.log(b)), mean_of(table, rule, b).mean) for b in batches(table, rule)
        ]
    return curves(found)


def io_bottleneck() -> str:
    """Input stall of a step as more nodes read from the shared file system."""
    columns = []
    for nodes in (4, 8, 16, 32, 64):
        run = Experiment(
            model="resnet50",
            machine="abci",
            dataset="imagenet",
            strategy={"nodes": nodes, "batch": 32},
            storage={"tier": "lustre"},
        )
        p = predict(run)
        columns.append(
            [("backward", float(p.step_time - p.input_stall)), ("input", float(p.input_stall))]
        )
    return stacks(columns)


def model_parallel() -> str:
    """1F1B on four stages: forward, backward, and the bubble."""
    run = Experiment(
        model="gpt2-1.5b",
        machine="selene",
        dataset="webtext",
        strategy={
            "nodes": 1,
            "devices_per_node": 4,
            "pipeline": 4,
            "microbatches": 6,
            "batch": 6,
            "schedule": "1f1b",
        },
    )
    return lanes(simulate(run), range(4))


def memory_wall() -> str:
    """Memory of a GPU by term, in more and more stages, and its limit."""
    run = replay("narayanan-2021").experiment
    names = {
        "weights": "backward",
        "gradients": "gradient",
        "optimizer state": "update",
        "activations": "forward",
    }
    columns = []
    for pipeline in (2, 4, 8, 16):
        held = predict(run.set({"strategy.pipeline": pipeline})).memory
        columns.append([(color, float(held[name])) for name, color in names.items()])
    return stacks(columns, limit=80e9)


def hybrid_parallel() -> str:
    """Step time of each split of 64 GPUs: the darker, the faster."""
    run = replay("narayanan-2021").experiment.set({"model.name": "gpt-22b"})
    grid = []
    for tensor in (1, 2, 4, 8):
        row = []
        for pipeline in (1, 2, 4, 8):
            split = {"strategy.nodes": 8, "strategy.tensor": tensor, "strategy.pipeline": pipeline}
            replicas = 64 // (tensor * pipeline)
            batch = {"strategy.batch": 512 // replicas, "strategy.microbatches": 512 // replicas}
            row.append(float(predict(run.set(split | batch)).step_time))
        grid.append(row)
    return cells(grid)


def failures() -> str:
    """Overhead against the checkpoint interval: saving to the left, lost work to the right."""
    cost, failure = 60.0, 6 * 3600.0
    interval = np.geomspace(200, 20000, 30)
    x = np.log(interval)
    own = {"checkpoint": cost / interval, "tensor": interval / (2 * failure)}
    own["backward"] = own["checkpoint"] + own["tensor"]
    return curves({name: list(zip(x, y, strict=True)) for name, y in own.items()})


def energy_planning() -> str:
    """Energy against time to an accuracy: the last minutes cost most."""
    nodes = 2 ** np.arange(2, 9)
    run = replay("goyal-2017").experiment.set({"machine.nodes": 256, "run.target": 0.76})
    found = {}
    for limit, color in ((0.0, "tensor"), (175.0, "backward")):
        own = {"strategy.nodes": nodes, "strategy.batch": 1024 // nodes}
        p = predict(run.set({**own, "strategy.power_limit": limit})).to_accuracy
        both = zip(np.log(p.time.median), np.log(p.energy.median), strict=True)
        found[color] = list(both)
    return curves(found)


def traces() -> str:
    """Ranks that wait for a late one."""
    run = replay("goyal-2017").experiment.set({"strategy.nodes": 1, "machine.jitter": 0.12})
    return lanes(simulate(run), range(5))


def language_model() -> str:
    """Llama 3 405B in fewer and fewer stages: the bubble shrinks, communication grows."""
    own = Experiment(**catalog.read("presets", "llama3-405b")["experiment"])
    columns = []
    for stages in (32, 16, 8, 4, 2):
        split = {"strategy.pipeline": stages, "strategy.chunks": 128 // stages}
        split |= {"strategy.batch": stages, "strategy.microbatches": stages}
        p = predict(own.set({**split, "strategy.zero": 3}))
        exposed = [("tensor", p.exposed["tensor"]), ("gradient", p.exposed["data"])]
        parts = [("backward", p.compute), *exposed, ("bubble", p.pipeline_bubble)]
        columns.append([(color, float(seconds)) for color, seconds in parts])
    return stacks(columns)


def serving() -> str:
    """Time per token against tokens/s, with 8 and 32 heads of keys: flat, then steep."""
    found = {}
    for heads, color in ((8, "backward"), (32, "gradient")):
        model = {"name": "llama3-8b", "kv_heads": heads}
        load = {"prompt": 2048, "answer": 256, "rate": 0.0}
        tables = {"model": model, "machine": "h100-pod", "requests": load}
        curve = predict_service(read_service({**tables, "service": {"batch": 512}})).curve
        found[color] = [(np.log(point.tokens_per_second), point.tpot) for point in curve]
    return curves(found)


def stacks(columns: Sequence[Sequence[tuple[str, float]]], limit: float = 0.0) -> str:
    """Return columns of stacked bars, each part a color and a height; a dashed line at `limit`."""
    most = max(limit, *(sum(height for _, height in column) for column in columns))
    step = (WIDTH - 2 * EDGE) / len(columns)
    marks = []
    for at, column in enumerate(columns):
        y = HEIGHT - EDGE
        for color, height in column:
            high = height / most * (HEIGHT - 2 * EDGE)
            y -= high
            marks.append(box(EDGE + at * step, y, 0.7 * step, high, color))
    if limit:
        y = HEIGHT - EDGE - limit / most * (HEIGHT - 2 * EDGE)
        marks.append(f'<path d="M{EDGE} {y:.1f}H{WIDTH - EDGE}" class="limit"/>')
    return svg(marks)


def curves(found: Mapping[str, Sequence[Point]]) -> str:
    """Return a line for each color, all on the same scales."""
    points = np.array([point for own in found.values() for point in own], dtype=float)
    low, high = points.min(axis=0), points.max(axis=0)
    marks = []
    for color, own in found.items():
        at = (np.array(own, dtype=float) - low) / (high - low)
        x, y = EDGE + at[:, 0] * (WIDTH - 2 * EDGE), HEIGHT - EDGE - at[:, 1] * (HEIGHT - 2 * EDGE)
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
        marks.append(f'<path d="M{path}" class="line" stroke="var(--dl-{color})"/>')
    return svg(marks)


def cells(grid: Sequence[Sequence[float]]) -> str:
    """Return a grid of squares: the smaller the value, the darker."""
    values = np.log(np.array(grid))
    share = (values - values.min()) / (np.ptp(values) or 1.0)
    high, wide = (HEIGHT - 2 * EDGE) / len(grid), (WIDTH - 2 * EDGE) / len(grid[0])
    marks = []
    for (row, column), pale in np.ndenumerate(share):
        x, y = EDGE + column * wide, EDGE + row * high
        marks.append(box(x, y, wide - 3, high - 3, "backward", 1.0 - 0.85 * pale))
    return svg(marks)


def lanes(timeline: Timeline, ranks: Sequence[int]) -> str:
    """Return what some ranks compute, a lane each; where nothing is drawn they are idle."""
    own = timeline.select(timeline.where("compute", "forward", "backward", "update"))
    end, high = float(own.stop.max()), (HEIGHT - 2 * EDGE) / len(ranks)
    marks = [
        box(EDGE, EDGE + lane * high, WIDTH - 2 * EDGE, high - 3, "idle", 0.35)
        for lane in range(len(ranks))
    ]
    scale = (WIDTH - 2 * EDGE) / end
    for event in own:
        if event.rank in ranks:
            x, y = EDGE + event.start * scale, EDGE + list(ranks).index(event.rank) * high
            marks.append(box(x, y, (event.stop - event.start) * scale, high - 3, event.kind))
    return svg(marks)


def box(x: float, y: float, width: float, height: float, color: str, opacity: float = 1.0) -> str:
    """Return a rectangle."""
    pale = f' opacity="{opacity:.2f}"' if opacity < 1 else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.0):.1f}" height="{max(height, 0.0):.1f}"'
    return f'<rect {place} fill="var(--dl-{color})"{pale}/>'


def svg(marks: Sequence[Any]) -> str:
    """Return the picture; it repeats what the card says, so it has no words."""
    inside = "".join(marks)
    return f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" aria-hidden="true">{inside}</svg>'
