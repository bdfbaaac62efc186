"""Two matrix products split over GPUs, X A, an activation, Y B, as in the middle of a Transformer's layer."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import Data, State
from lib_dlhpc.explore.blocks.lines import Curves, line_columns, value_at
from lib_dlhpc.explore.model_parallel.a100 import on_a100
from lib_dlhpc.explore.model_parallel.shards import MESSAGES, SPLITS, shards_state
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import breakdown

GPUS = (1, 2, 4, 8, 16, 32, 64)
WIDTHS, WIDE = (1024, 2048, 4096, 8192, 16384), "Columns of X; A makes four times as many"
ROWS = (256, 512, 1024, 2048, 4096, 8192)
NICS = {f"{rate} Gb/s": rate * 1e9 for rate in (25, 100, 200, 400)} | {"8 × 200 Gb/s": 1.6e12}
BY_WORDS = {words: split for split, words in SPLITS.items()}
WASTE = 0.5  # share of the time that goes into messages, from which it is a wall


class Products(NamedTuple):
    """Two products, split. width: of X; A makes it four times as wide. nic: bit/s."""

    split: Annotated[str, Dropdown("Split", "How the weights are sharded", BY_WORDS)] = "paired"
    gpus: Annotated[int, Slider("GPUs", "t: each matmul is sharded over them", GPUS)] = 16
    width: Annotated[int, Slider("Width", WIDE, WIDTHS)] = 4096
    tokens: Annotated[int, Slider("Rows", "Rows of X: the tokens of a step", ROWS)] = 2048
    node: Annotated[int, Slider("GPUs per node", "They have NVLink among them", GPUS)] = 8
    nic: Annotated[float, Slider("NIC", "Of a node, for all its GPUs", NICS)] = 200e9


@on_bench(
    Products(),
    "product_parts",
    "product_time",
    "product_bytes",
    fine="Computation takes longer than communication.",
)
def split_products(setting: Products) -> View:
    """Look for where the line of this machine leaves the one of a node for all, and what it does next."""
    split, gpus, width, tokens, *_ = setting
    charts = {
        "product_parts": shards_state(split, gpus, tokens, width),
        "product_time": time_view(setting),
        "product_bytes": bytes_view(setting),
    }
    return View(products_words(setting), products_wall(setting), charts)


def products(setting: Products) -> Experiment:
    """Return both products in bf16 on A100 GPUs; before them, a layer that is not sharded."""
    wide, narrow = ({"kind": "dense", "features": n * setting.width} for n in (4, 1))
    layers = [{"kind": "layer_norm"}, wide, {"kind": "gelu"}, narrow]
    network = {"family": "sequential", "input": [setting.tokens, setting.width], "layers": layers}
    per = min(setting.node, setting.gpus)
    gpus = {"nodes": setting.gpus // per, "devices_per_node": per, "tensor": setting.gpus}
    strategy = {**gpus, "batch": 1, "split": setting.split}
    return on_a100(network, "webtext", strategy, setting.nic, devices_per_node=GPUS[-1])


@lru_cache(maxsize=1024)
def predicted(setting: Products) -> Breakdown:
    """Return the prediction of a step; `seconds` has what of it counts here."""
    return predict(products(setting))


def seconds(setting: Products) -> float:
    """Return s of both products forward and backward with their messages; without the update."""
    step = predicted(setting)
    return float(step.forward + step.backward + step.exposed_communication)


def bytes_sent(setting: Products) -> float:
    """Return the bytes that a GPU sends in one step: what its links take, times their rate."""
    step = predicted(setting._replace(node=GPUS[-1]))
    link = step.experiment.machine.intra_node
    return float(step.communication.bandwidth * link.bandwidth * link.efficiency)


def exchanges(setting: Products) -> int:
    """Return the number of collectives of a step."""
    return sum(what != "slice" for _, _, what in MESSAGES[setting.split] * (setting.gpus > 1))


def time_view(setting: Products) -> State:
    """Return the chart "product_time": on this machine, in a node large enough, and ideally."""
    gpus = np.array(GPUS)
    here, near = (
        np.array([seconds(setting._replace(gpus=n, node=node)) for n in GPUS])
        for node in (setting.node, GPUS[-1])
    )
    lines = {"ideal": here[0] / gpus, "one node for all": near, "this machine": here}
    data = _lines({name: (gpus, y) for name, y in lines.items()}, "this machine", setting.gpus, "s")
    return data, (
        f"{count(setting.gpus, 'GPU')}: {show(seconds(setting), 's')}; on this machine {gpus[here.argmin()]} are the"
        f" fastest, {show(float(here.min()), 's')}."
    )


def bytes_view(setting: Products) -> State:
    """Return the chart "product_bytes": what a GPU sends, for each way to split."""
    curves = {}
    for split, words in SPLITS.items():
        sent = [bytes_sent(setting._replace(split=split, gpus=n)) for n in GPUS[1:]]
        curves[words.replace(",", "")] = (np.array(GPUS[1:]), np.array(sent))
    data = _lines(curves, SPLITS[setting.split].replace(",", ""), setting.gpus, "B")
    if setting.gpus == 1:
        return data, "One GPU has nobody to send to."
    each = {words: bytes_sent(setting._replace(split=split)) for split, words in SPLITS.items()}
    sizes = ", ".join(f"{words} {show(sent, 'B')}" for words, sent in each.items())
    return data, f"Of {setting.gpus} GPUs each sends: {sizes}."


def _lines(curves: Curves, chosen: str, now: int, unit: str) -> Data:
    """Return lines, and the value of the chosen one at the chosen number of GPUs."""
    value = value_at({"now:": curves[chosen]}, now, lambda y: show(y, unit))
    return {**line_columns(curves), "now": value}


def products_words(setting: Products) -> str:
    """Say how long it takes, predicted and simulated, and the share of the messages."""
    whole = seconds(setting)
    if setting.gpus == 1:
        return f"<b>1 GPU: {show(whole, 's')}</b> for both matmuls, forward and backward."
    terms = breakdown(simulate(products(setting))).terms
    simulated = terms["forward"] + terms["backward"] + terms["exposed communication"]
    exposed = float(predicted(setting).exposed_communication)
    return (
        f"<b>{setting.gpus} GPUs: {show(whole, 's')}</b> predicted, {show(simulated, 's')} simulated:"
        f" {seconds(setting._replace(gpus=1)) / whole:.3g} times as fast as one."
        f" {count(exchanges(setting), 'collective')}, in which each GPU sends {show(bytes_sent(setting), 'B')},"
        f" take {exposed / whole:.0%} of the time."
    )


def products_wall(setting: Products) -> str:
    """Say why more GPUs do not help, or nothing where they do."""
    exposed, whole = float(predicted(setting).exposed_communication), seconds(setting)
    if exposed < WASTE * whole:
        return ""
    if setting.gpus > setting.node:
        near = seconds(setting._replace(gpus=setting.node))
        than = f"{whole / near:.3g} times as long as" if whole > near else "hardly less than"
        return (
            f"Across {setting.gpus // setting.node} nodes tensor parallelism is bandwidth-starved:"
            f" {show(exposed, 's')} of {show(whole, 's')} are communication. That is {than}"
            f" {count(setting.node, 'GPU')} of one node, {show(near, 's')}."
        )
    return (
        f"Shards too small: each GPU has {4 * setting.width // setting.gpus:,} columns of A and computes for"
        f" {show(whole - exposed, 's')}; the messages take {show(exposed, 's')}."
    )


def gain(gpus: int, more: int, **choice: Any) -> float:
    """Return how many times as fast `more` GPUs are as `gpus`, everything else as chosen or as the page opens."""
    few, many = (seconds(Products(gpus=n, **choice)) for n in (gpus, more))
    return few / many
