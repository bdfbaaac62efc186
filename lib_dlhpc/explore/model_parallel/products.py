"""Two matrix products split over GPUs, by columns, by rows, or one after the other: shards and messages.

split_products()   the experiment: X A, an activation, Y B, as in the middle of a Transformer's layer
"""

from functools import lru_cache
from typing import NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.costs.stage import messages, regathered
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.model_parallel.charts import bytes_state, parts_state, products_state
from lib_dlhpc.layout import parts
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import breakdown

GPUS = (1, 2, 4, 8, 16, 32, 64)
NODES = (1, 2, 4, 8, 16, 32, 64)  # GPUs in a node
SPLITS = {"paired": "column, then row", "column": "columns twice", "row": "rows twice"}
NICS = {
    "25 Gb/s": 25e9,
    "100 Gb/s": 100e9,
    "200 Gb/s": 200e9,
    "400 Gb/s": 400e9,
    "8 × 200 Gb/s": 1.6e12,
}
WASTE = 0.5  # share of the time that goes into messages, from which it is a wall


class Products(NamedTuple):
    """What the controls say. width: of X; A makes it four times as wide. nic: of a node, bit/s."""

    split: str = "paired"
    gpus: int = 16
    width: int = 4096
    tokens: int = 2048
    node: int = 8
    nic: float = 200e9


def split_products() -> ipywidgets.Box:
    """Return the experiment: the shards, the time, the bytes sent."""
    controls = {
        "split": dropdown(
            "Split",
            "How the weights are sharded",
            [(words, name) for name, words in SPLITS.items()],
            "paired",
        ),
        "gpus": slider(
            "GPUs", "t: each product is sharded over them", [(str(n), n) for n in GPUS], 16
        ),
        "width": slider(
            "Width",
            "Columns of X; A makes four times as many",
            [(f"{n:,}", n) for n in (1024, 2048, 4096, 8192, 16384)],
            4096,
        ),
        "tokens": slider(
            "Rows",
            "Rows of X: the tokens of a step",
            [(f"{n:,}", n) for n in (256, 512, 1024, 2048, 4096, 8192)],
            2048,
        ),
        "node": slider(
            "GPUs a node", "They have NVLink among them", [(str(n), n) for n in NODES], 8
        ),
        "nic": slider("NIC", "Of a node, for all its GPUs", list(NICS.items()), 200e9),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    picture, curve, sent = chart("product_parts"), chart("product_time"), chart("product_bytes")

    def update() -> None:
        setting = Products(**{name: control.value for name, control in controls.items()})
        picture.update(*parts_view(setting))
        curve.update(*time_view(setting))
        sent.update(*bytes_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{products_words(setting)}</p>'
        wall.value = wall_html(
            products_wall(setting), "Computation takes longer than communication."
        )

    note = "where the line of this machine leaves the one of a node for all, and what it does next."
    return workbench(controls, [verdict, wall, picture, curve, sent], update, note)


def products(setting: Products) -> Experiment:
    """Return X A, an activation, and Y B in bf16 on A100 GPUs; before it, what is not sharded."""
    layers = [
        {"kind": "layer_norm"},
        {"kind": "dense", "features": 4 * setting.width},
        {"kind": "gelu"},
        {"kind": "dense", "features": setting.width},
    ]
    network = {"family": "sequential", "input": [setting.tokens, setting.width], "layers": layers}
    per = min(setting.node, setting.gpus)
    return read_experiment(
        {
            "model": network,
            "dataset": "webtext",
            "machine": {
                "name": "selene",
                "jitter": 0.0,
                "devices_per_node": GPUS[-1],
                "nics": 1,
                "inter_node": {"name": "ib-hdr", "latency": "6 us", "bandwidth": setting.nic / 8},
            },
            "strategy": {
                "nodes": setting.gpus // per,
                "devices_per_node": per,
                "tensor": setting.gpus,
                "batch": 1,
                "split": setting.split,
                "precision": "bf16",
            },
            "storage": {"tier": ""},
        }
    )


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
    """Return the number of collectives of a step: forward, backward, and what is gathered once more."""
    (part,) = parts(products(setting), 0)
    there, back, _, again = messages(part.model, "none")
    return sum(many for way in (there, back, again) for _, _, many, _ in way.exchanges)


def parts_view(setting: Products) -> State:
    """Return the columns of the chart "product_parts"."""
    experiment = products(setting)
    every = [parts(experiment, rank)[0].model.layers for rank in range(setting.gpus)]
    again = regathered(parts(experiment, 0)[0].model, "none")
    names = {layer.name for layer in again}
    return parts_state(every, names, setting.tokens, setting.width, SPLITS[setting.split])


def time_view(setting: Products) -> State:
    """Return the columns of the chart "product_time"."""
    gpus = np.array(GPUS)
    here = np.array([seconds(setting._replace(gpus=n)) for n in GPUS])
    near = np.array([seconds(setting._replace(gpus=n, node=GPUS[-1])) for n in GPUS])
    lines = {"ideal": here[0] / gpus, "one node for all": near, "this machine": here}
    return products_state(gpus, lines, setting.gpus)


def bytes_view(setting: Products) -> State:
    """Return the columns of the chart "product_bytes"."""
    lines = {
        words: np.array([bytes_sent(setting._replace(split=split, gpus=n)) for n in GPUS])
        for split, words in SPLITS.items()
    }
    return bytes_state(np.array(GPUS), lines, setting.gpus, SPLITS[setting.split])


def products_words(setting: Products) -> str:
    """Say how long it takes, predicted and simulated, and the share of the messages."""
    whole, alone = seconds(setting), seconds(setting._replace(gpus=1))
    if setting.gpus == 1:
        return f"<b>1 GPU: {show(whole, 's')}</b> for both products, forward and backward."
    terms = breakdown(simulate(products(setting))).terms
    simulated = terms["forward"] + terms["backward"] + terms["exposed communication"]
    exposed = float(predicted(setting).exposed_communication)
    many = exchanges(setting)
    return (
        f"<b>{setting.gpus} GPUs: {show(whole, 's')}</b> predicted, {show(simulated, 's')} simulated:"
        f" {alone / whole:.3g} times as fast as one. {many} collective{'s' * (many > 1)}, in which each GPU sends"
        f" {show(bytes_sent(setting), 'B')}, take {exposed / whole:.0%} of the time."
    )


def products_wall(setting: Products) -> str:
    """Say why more GPUs do not help, or nothing where they do."""
    step, whole = predicted(setting), seconds(setting)
    exposed = float(step.exposed_communication)
    if exposed < WASTE * whole:
        return ""
    if setting.gpus > setting.node:
        near = seconds(setting._replace(gpus=setting.node))
        nodes = setting.gpus // setting.node
        inside = f"{setting.node} GPU{'s' * (setting.node > 1)} of one node"
        than = f"{whole / near:.3g} times as long as" if whole > near else "hardly less than"
        return (
            f"Across {nodes} nodes tensor parallelism is bandwidth-starved: {show(exposed, 's')} of {show(whole, 's')}"
            f" are communication. That is {than} {inside}, {show(near, 's')}."
        )
    each = 4 * setting.width // setting.gpus
    return (
        f"Shards too small: each GPU has {each:,} columns of A and computes for"
        f" {show(whole - exposed, 's')}; the messages take {show(exposed, 's')}."
    )


def gain(gpus: int, more: int) -> float:
    """Return how many times as fast `more` GPUs are as `gpus`, everything else as the page opens."""
    return seconds(Products(gpus=gpus)) / seconds(Products(gpus=more))
