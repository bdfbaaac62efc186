"""Eight GPUs, one replica or several: the price of a token against its time, in dollars or joules."""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State, marked
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.explore.serving.phases import sequences
from lib_dlhpc.explore.serving.served import PER_NODE, TERMS, Network, Weights, service
from lib_dlhpc.serving import Service
from lib_dlhpc.serving.predict import Point, ServicePrediction, predict_service
from lib_dlhpc.spec.units import format_plain as plain
from lib_dlhpc.spec.units import format_quantity as show

RANKS = (1, 2, 4, 8)  # tensor-parallel ranks of a replica
BATCHES = tuple(2**k for k in range(3, 11))  # sequences of all eight GPUs
PRICES = (1.5, 2.5, 4.0, 8.0)  # dollars for a GPU-hour
PROMPT, ANSWER = 1024, 256
MILLION = 1e6
DOLLARS, JOULES = "dollars", "joules"
SHAPES = {g: f"{PER_NODE // g} × {g} GPU{'s' if g > 1 else ''}" for g in RANKS}


class Setting(NamedTuple):
    """Eight H100. ranks: of a replica; batch: sequences of all replicas together; shown: what a token costs."""

    network: Network = "llama3-70b"
    weights: Weights = "bf16"
    ranks: Annotated[int, Slider("GPUs per replica", "Tensor parallel; 8 in all", RANKS)] = 8
    batch: Annotated[int, Slider("Sequences", "Decoded at once on all 8", BATCHES)] = 64
    price: Annotated[float, Slider("Price", "Of a GPU-hour", PRICES, "${:.2f}".format)] = 2.5
    shown: Annotated[str, Dropdown("Cost in", "What the chart shows", (DOLLARS, JOULES))] = DOLLARS


@on_bench(Setting(), "serving_price", fine="The batch fits.")
def one_or_eight(setting: Setting) -> View:
    """Look for which line is lowest at a TPOT that you would accept, and where it ends."""
    own, wall = chosen(setting), wall_of(setting)
    dollars, joules = own.cost, own.joules * MILLION
    words = (
        f"<b>${dollars:.3g} and {show(joules, 'J')} a million tokens,</b> {show(own.tpot, 's')} a token,"
        f" {plain(own.tokens_per_second)} tokens/s of eight GPUs as {SHAPES[setting.ranks]}. The largest term of a"
        f" step: {TERMS[own.bound][0]}. {best_words(setting)}"
    )
    return View(words, wall, {"serving_price": price_state(setting)})


@lru_cache(maxsize=256)
def predicted(network: str, weights: str, ranks: int) -> ServicePrediction:
    """Return the prediction of eight GPUs at one dollar for a GPU-hour; raises SpecError where weights do not fit."""
    return predict_service(eight(network, weights, ranks))


def eight(network: str, weights: str, ranks: int) -> Service:
    """Return a service on eight H100, with all sequences of BATCHES allowed."""
    replicas = PER_NODE // ranks
    return service(
        network,
        {"name": "h100-pod", "device_price": 1.0},
        {"prompt": PROMPT, "answer": ANSWER, "rate": 0.0},
        devices=ranks,
        replicas=replicas,
        precision=weights,
        batch=max(BATCHES) // replicas,
    )


def path(setting: Setting, ranks: int) -> list[Point]:
    """Return the batches of BATCHES that fit, and the largest that does, with the price of the setting."""
    found = predicted(setting.network, setting.weights, ranks)
    return [
        point._replace(cost=setting.price * point.cost)
        for point in found.curve
        if point.batch * PER_NODE // ranks >= BATCHES[0]
    ]


def chosen(setting: Setting) -> Point:
    """Return the point of a setting, or the largest batch that fits; raises SpecError where the weights do not."""
    replicas = PER_NODE // setting.ranks
    return [p for p in path(setting, setting.ranks) if p.batch * replicas <= setting.batch][-1]


def wall_of(setting: Setting) -> str:
    """Say that a batch does not fit, or nothing."""
    found = predicted(setting.network, setting.weights, setting.ranks)
    wanted = setting.batch * setting.ranks // PER_NODE
    if wanted <= found.sequences:
        return ""
    return (
        f"Memory: a replica has room for the cache of {sequences(found.sequences)}; {wanted} were asked for, and the"
        " others wait in the queue."
    )


def paths(setting: Setting) -> dict[int, list[Point]]:
    """Return the points of each number of ranks that holds the weights."""
    found = {}
    for ranks in RANKS:
        try:
            found[ranks] = path(setting, ranks)
        except SpecError:
            continue  # the weights do not fit: no line
    return found


def cost_of(shown: str) -> Callable[[Point], float]:
    """Return what takes the shown cost of a million tokens from a point."""
    return (lambda p: p.joules * MILLION) if shown == JOULES else (lambda p: p.cost)


def cheapest(setting: Setting, tpot: float = np.inf) -> tuple[int, Point]:
    """Return the ranks and the point of the cheapest token that takes at most `tpot` s."""
    cost = cost_of(setting.shown)
    every = [(g, p) for g, points in paths(setting).items() for p in points if p.tpot <= tpot]
    return min(every, key=lambda each: cost(each[1]))


def best_words(setting: Setting) -> str:
    """Say which eight GPUs are cheapest, and which are fastest."""
    ranks, point = cheapest(setting)
    quick, fast = min(
        ((g, p) for g, points in paths(setting).items() for p in points),
        key=lambda each: each[1].tpot,
    )
    return (
        f"Cheapest: {SHAPES[ranks]}, {said(setting, point)} at {show(point.tpot, 's')} a token; quickest:"
        f" {SHAPES[quick]}, {said(setting, fast)} at {show(fast.tpot, 's')}."
    )


def said(setting: Setting, point: Point) -> str:
    """Return the shown cost of a million tokens in words."""
    cost = cost_of(setting.shown)(point)
    return show(cost, "J") if setting.shown == JOULES else f"${cost:.3g}"


def price_state(setting: Setting) -> State:
    """Return the cost of a million tokens against the time of one, for each number of ranks, along its batches."""
    cost, curves = cost_of(setting.shown), {}
    for ranks, points in paths(setting).items():
        both = np.array([(p.tpot, cost(p)) for p in points])
        curves[SHAPES[ranks]] = (both[:, 0], both[:, 1])
    own = chosen(setting)
    now = marked(said(setting, own), False, 10, x=own.tpot, y=cost(own))
    each = "; ".join(
        f"{SHAPES[g]} from {said(setting, points[0])} at {show(points[0].tpot, 's')} to {said(setting, points[-1])} at"
        f" {show(points[-1].tpot, 's')}"
        for g, points in paths(setting).items()
    )
    return {**line_columns(curves), "now": now}, f"A million tokens in {setting.shown}: {each}."
