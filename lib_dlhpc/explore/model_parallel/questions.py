"""What module 04 asks: the figures and the numbers of lesson.toml."""

from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.model_parallel import cuts, live, pipeline, products
from lib_dlhpc.explore.model_parallel.cuts import Cut
from lib_dlhpc.explore.model_parallel.pipeline import Pipe
from lib_dlhpc.explore.model_parallel.products import Products, gain
from lib_dlhpc.explore.model_parallel.published import published_table
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

GPIPE = Pipe(batch=32, microbatches=16)
LAYERS, TIME = (Cut(way=way) for way in ("equal numbers of layers", "equal time"))


def share(**choice: Any) -> float:
    """Return the share of the products' time that goes into messages."""
    setting = Products(**choice)
    return float(products.predicted(setting).exposed_communication) / products.seconds(setting)


def step(**choice: Any) -> Breakdown:
    """Return the prediction of a pipeline with 16 microbatches and other choices."""
    return pipeline.predicted(GPIPE._replace(**choice))


def stores(**choice: Any) -> str:
    """Say what the pipeline stores."""
    found = step(**choice)
    return f"{show(float(found.memory_total), 'B')}, {'fits' if found.fits else 'does not fit'}"


def fastest(link: float) -> str:
    """Return the way to cut ResNet-50 that is the fastest."""
    return min(cuts.WAYS, key=lambda way: cuts.seconds(Cut(way=way, link=link))[0]).capitalize()


def slow_links() -> list[str]:
    """Return the links with which messages are the bottleneck, the fastest last."""
    walls = {name: cuts.cut_wall(Cut(link=link)) for name, link in cuts.LINKS.items()}
    return [name for name, wall in walls.items() if wall.startswith("The message")]


def bubble(draw: np.random.Generator) -> Drawn:
    """Return a pipeline of one learner, and its idle share in percent."""
    p, v = int(draw.choice([4, 8, 16])), int(draw.choice([1, 2, 4]))
    m = p * int(draw.integers(1, 5))
    over_work, plain = (p - 1) / (v * m), (p - 1) / m
    answer = 100 * over_work / (1 + over_work)
    wrong = {"over_the_work": 100 * over_work, "busy": 100 - answer}
    if v > 1:
        wrong["no_chunks"] = 100 * plain / (1 + plain)
    return {"p": p, "m": m, "chunks": count(v, "chunk")}, answer, wrong


lesson = Lesson.read(
    __file__,
    outcomes={
        "sixteen_gpus": (lambda: gain(8, 16), products.split_products),
        "pipeline_gain": (lambda: pipeline.speed_up(Pipe()), pipeline.a_pipeline),
        "uneven_stages": (lambda: cuts.unevenness(LAYERS), cuts.where_to_cut),
        "quickest_way": (lambda: live.quickest(live.Setting(ranks=2)), live.split_here),
    },
    numbers={
        "share": share,
        "share_wide": lambda: share(width=8192),
        "share_rows": lambda: share(tokens=4096),
        "eight_nics": lambda: gain(8, 16, nic=1.6e12),
        "last_32": lambda: gain(32, 64, node=64),
        "narrow": lambda: gain(16, 32, node=64, width=1024),
        **Pipe()._asdict(),
        "layers": pipeline.LAYERS,
        "bound": lambda: Pipe().ranks / (1 + pipeline.formula(Pipe())),
        "each": Pipe().batch / Pipe().microbatches,
        "bubble": lambda: pipeline.bubble_of(Pipe()),
        "bubble_16": lambda: pipeline.bubble_of(Pipe(microbatches=16)),
        "gpipe_stores": stores,
        "one_by_one_stores": lambda: stores(schedule="1F1B"),
        "recomputed": lambda: float(step(recompute="full").step_time / step().step_time) - 1,
        "recomputed_stores": lambda: stores(recompute="full"),
        "one_by_one_kept": lambda: pipeline.kept(GPIPE._replace(schedule="1F1B"))[0],
        "one_by_one_bubble": lambda: pipeline.bubble_of(Pipe(schedule="1F1B")),
        "zero_bubble": lambda: pipeline.bubble_of(Pipe(schedule="zero bubble")),
        "chunks_kept": lambda: pipeline.kept(GPIPE._replace(schedule="interleaved, 2 chunks"))[0],
        "fastest": lambda: fastest(200e9),
        "fastest_at_400": lambda: fastest(400e9),
        "layers_send": lambda: show(float(cuts.stages(LAYERS).sends[0]), "B"),
        "time_sends": lambda: show(float(cuts.stages(TIME).sends[0]), "B"),
        "uneven_work": lambda: cuts.unevenness(Cut("ResNet-1001", way="equal work")),
        "slow_link": lambda: slow_links()[-1],
    },
    draws={"bubble": bubble},
    tables={"published": published_table},
)
ask = lesson.ask
