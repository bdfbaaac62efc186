"""The ledger: the memory of a training step, term by term, and the moment of its peak."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.explorer.controls import DATASETS
from lib_dlhpc.explore.memory_wall.charts import course_state, memory_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory.rank_memory import Moment, peak
from lib_dlhpc.prediction.memory.timeline import MemoryTimeline, memory_timeline
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

MODELS = {
    "ResNet-50": "resnet50",
    "VGG-16": "vgg16",
    "CosmoFlow, 512³": "cosmoflow-512",
    "BERT large": "bert-large",
    "GPT-2, 1.5 billion parameters": "gpt2-1.5b",
    "GPT-3, 175 billion parameters": "gpt3-175b",
}
DEVICES = {
    "V100, 16 GB": "v100-sxm2-16gb",
    "V100, 32 GB": "v100-sxm2-32gb",
    "A100, 40 GB": "a100-sxm-40gb",
    "A100, 80 GB": "a100-sxm-80gb",
    "H100, 80 GB": "h100-sxm-80gb",
}
BATCHES = tuple(2**k for k in range(11))
NUMBERS = {"fp32": "fp32", "fp16, mixed": "fp16"}
OPTIMIZERS = {
    "SGD: nothing": "sgd",
    "momentum: one number": "momentum",
    "Adam: two numbers": "adam",
}
STATE = ("weights", "master weights", "gradients", "optimizer state")


class Setting(NamedTuple):
    """A network on one GPU."""

    model: Annotated[str, Dropdown("Network", "What is trained", MODELS)] = "gpt2-1.5b"
    batch: Annotated[int, Slider("Batch", "Samples on the GPU", BATCHES)] = 4
    precision: Annotated[
        str, Dropdown("Numbers", "fp16: mixed, with fp32 weights for the update", NUMBERS)
    ] = "fp16"
    optimizer: Annotated[str, Dropdown("Optimizer", "Its state for each weight", OPTIMIZERS)] = (
        "adam"
    )
    device: Annotated[str, Dropdown("GPU", "Its memory is the wall", DEVICES)] = "a100-sxm-40gb"


@on_bench(Setting(), "memory", "memory_course", fine="It fits.")
def the_ledger(setting: Setting) -> View:
    """Look for the longest step of the staircase; then the moment of the peak."""
    weights, state, activations = shares(setting)
    moment, larger = fullest(setting), activations > state
    ratio = f"{activations / weights:{',.0f' if activations > 100 * weights else '.3g'}}"
    terms = memory_state(moment.terms, capacity(setting))
    course = course_state(in_time(setting), capacity(setting))
    return View(
        f"<b>At the peak {show(moment.total, 'B')}, {moment.when.split(',')[0]}.</b> The weights are"
        f" {show(weights, 'B')}; with gradients and optimizer state {state / weights:.3g} times that."
        f" Activations are {show(activations, 'B')}, {ratio} times the weights"
        f" {'and the larger term' if larger else 'and the smaller term here'}.",
        " ".join(predict(experiment(setting)).walls),
        {"memory": terms, "memory_course": course},
    )


@lru_cache(maxsize=256)
def experiment(setting: Setting, **strategy: Any) -> Experiment:
    """Return the run on one GPU; every kind in a node of the same machine, which does not matter here."""
    family = catalog.read("models", setting.model)["family"]
    fixed: dict[str, Any] = {"nodes": 1, "devices_per_node": 1, "batch": setting.batch}
    fixed |= {"precision": setting.precision, "optimizer": setting.optimizer}
    fixed |= {"fused_attention": "off"}  # on every GPU, so that they differ in their memory
    return Experiment(
        model={"name": setting.model},
        dataset={"name": DATASETS.get(family, "imagenet")},
        machine={"name": "selene", "device": setting.device, "jitter": 0.0},
        storage={"tier": ""},
        strategy=fixed | strategy,
    )


@lru_cache(maxsize=256)
def fullest(setting: Setting) -> Moment:
    """Return the moment of the peak."""
    return peak(experiment(setting))


@lru_cache(maxsize=64)
def in_time(setting: Setting) -> MemoryTimeline:
    """Return the memory of the GPU over a step."""
    return memory_timeline(experiment(setting))


def capacity(setting: Setting) -> float:
    """Return the bytes that the GPU has."""
    return float(experiment(setting).machine.device.memory)


def shares(setting: Setting) -> tuple[float, float, float]:
    """Return the bytes of the weights, of the whole state, and of activations at the peak."""
    terms = fullest(setting).terms
    state = sum(terms[name] for name in STATE)
    return terms["weights"], state, terms["activations"] + terms["working set"]
