"""The ledger: the memory of a training step, term by term, and the moment of its peak.

the_ledger()        the experiment: network, batch, numbers, optimizer, GPU
published_table()   published memory and times, beside their predictions
"""

from functools import lru_cache
from typing import Any, NamedTuple

import ipywidgets

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.explorer.controls import DATASETS
from lib_dlhpc.explore.memory_wall.charts import course_state, memory_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.ledger import Moment, peak
from lib_dlhpc.prediction.memory_timeline import MemoryTimeline, memory_timeline
from lib_dlhpc.prediction.validate import validate
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show

MODELS = {
    "ResNet-50": "resnet50",
    "VGG-16": "vgg16",
    "CosmoFlow, 512³": "cosmoflow-512",
    "BERT large": "bert-large",
    "GPT-2, 1.5 G weights": "gpt2-1.5b",
    "GPT-3, 175 G weights": "gpt3-175b",
}
DEVICES = {
    "V100, 16 GB": "v100-sxm2-16gb",
    "V100, 32 GB": "v100-sxm2-32gb",
    "A100, 40 GB": "a100-sxm-40gb",
    "A100, 80 GB": "a100-sxm-80gb",
    "H100, 80 GB": "h100-sxm-80gb",
}
BATCHES = tuple(2**k for k in range(11))
STATE = ("weights", "master weights", "gradients", "optimizer state")
PUBLISHED = {
    "zero20-mem-stage0": ("7.5 G weights, Adam, on each of 64 GPUs", "{:.4g} GB"),
    "zero20-mem-stage1": ("the same, ZeRO 1", "{:.4g} GB"),
    "zero20-mem-stage3": ("the same, ZeRO 3", "{:.3g} GB"),
    "kort22-mem-gpt3-save": ("GPT-3: activations saved by selective recomputation", "{:.0%}"),
    "kort22-layer-fullrecompute": (
        "GPT 22 G, a layer, full recomputation (19.6 ms without)",
        "{:.3g} ms",
    ),
    "kort22-layer-selective": ("the same, selective recomputation", "{:.3g} ms"),
    "gpipe19-memtr-pipeline-128": ("GPipe, weights and state on 128 stages", "{:.4g} GB"),
}


class Setting(NamedTuple):
    """What the controls say."""

    model: str = "gpt2-1.5b"
    batch: int = 4
    precision: str = "fp16"
    optimizer: str = "adam"
    device: str = "a100-sxm-40gb"


def the_ledger() -> ipywidgets.Box:
    """Return the experiment: the ledger as a staircase up to the wall, and memory over a step."""
    controls = {
        "model": dropdown("Network", "What is trained", MODELS.items(), "gpt2-1.5b"),
        "batch": slider("Batch", "Samples on the GPU", [(f"{n:,}", n) for n in BATCHES], 4),
        "precision": dropdown(
            "Numbers",
            "fp16: mixed, with fp32 weights for the update",
            [("fp32", "fp32"), ("fp16, mixed", "fp16")],
            "fp16",
        ),
        "optimizer": dropdown(
            "Optimizer",
            "Its state for each weight",
            [
                ("SGD: nothing", "sgd"),
                ("momentum: one number", "momentum"),
                ("Adam: two numbers", "adam"),
            ],
            "adam",
        ),
        "device": dropdown("GPU", "Its memory is the wall", DEVICES.items(), "a100-sxm-40gb"),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    terms, held = chart("memory"), chart("memory_course")

    def update() -> None:
        setting = Setting(**{name: control.value for name, control in controls.items()})
        terms.update(*terms_view(setting))
        held.update(*course_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{ledger_words(setting)}</p>'
        wall.value = wall_html(" ".join(predict(experiment(setting)).walls), "It fits.")

    note = "the longest step of the staircase; then the moment of the peak."
    return workbench(controls, [verdict, wall, terms, held], update, note)


@lru_cache(maxsize=256)
def experiment(setting: Setting, **strategy: Any) -> Experiment:
    """Return the run on one GPU; every kind in a node of the same machine, which does not matter here."""
    family = catalog.read("models", setting.model)["family"]
    fixed: dict[str, Any] = {"nodes": 1, "devices_per_node": 1, "batch": setting.batch}
    fixed |= {"precision": setting.precision, "optimizer": setting.optimizer}
    return read_experiment(
        {
            "model": {"name": setting.model},
            "dataset": {"name": DATASETS.get(family, "imagenet")},
            "machine": {"name": "selene", "device": setting.device, "jitter": 0.0},
            "storage": {"tier": ""},
            "strategy": fixed | strategy,
        }
    )


@lru_cache(maxsize=256)
def fullest(setting: Setting) -> Moment:
    """Return the moment of the peak."""
    return peak(experiment(setting))


@lru_cache(maxsize=64)
def in_time(setting: Setting) -> MemoryTimeline:
    """Return the memory of the GPU over a step."""
    return memory_timeline(experiment(setting))


def terms_view(setting: Setting) -> State:
    """Return the columns of the chart "memory"."""
    return memory_state(fullest(setting).terms, capacity(setting))


def course_view(setting: Setting) -> State:
    """Return the columns of the chart "memory_course"."""
    return course_state(in_time(setting), capacity(setting))


def capacity(setting: Setting) -> float:
    """Return the bytes that the GPU has."""
    return float(experiment(setting).machine.device.memory)


def shares(setting: Setting) -> tuple[float, float, float]:
    """Return the bytes of the weights, of the whole state, and of activations at the peak."""
    terms = fullest(setting).terms
    state = sum(terms[name] for name in STATE)
    return terms["weights"], state, terms["activations"] + terms["working set"]


def ledger_words(setting: Setting) -> str:
    """Say what the peak is, and how weights and activations compare."""
    weights, state, activations = shares(setting)
    moment = fullest(setting)
    ratio = activations / weights
    return (
        f"<b>At the peak {show(moment.total, 'B')}, {moment.when.split(',')[0]}.</b> The weights are"
        f" {show(weights, 'B')}; with gradients and optimizer state {state / weights:.3g} times that."
        f" Activations are {show(activations, 'B')}, {ratio:.3g} times the weights"
        f" {'and the larger term' if activations > state else 'and the smaller term here'}."
    )


def published_table() -> Table:
    """Return published figures, predictions and errors, as a table."""
    known = {row.id: row for row in validate(["definitions", "korthikanti", "gpipe"], PUBLISHED)}
    lines = [["", "published", "predicted", "error"]]
    for name, (words, shown) in PUBLISHED.items():
        row = known[name]
        both = (shown.format(value) for value in (row.published, row.predicted))
        lines.append([words, *both, f"{row.error:+.1%}"])
    return Table(lines)
