"""Networks small enough to be split on this machine: what can be run, on how many ranks.

A 3-D network on density fields, in slabs, stages and replicas; a GPT on sentences, in tensor ranks, stages and
replicas, all three at once on eight ranks.
"""

from typing import Annotated, Any, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count

MOST = 8  # ranks
RELU = {"kind": "leaky_relu"}
POOL = [RELU, {"kind": "max_pool", "kernel": 2}]
CONV = {"kind": "conv", "kernel": 3, "padding": 1}
DENSE = [{"kind": "dense", "features": 32}, RELU, {"kind": "dense", "features": 2}]
LAYERS = [{**CONV, "channels": 8}, *POOL, {**CONV, "channels": 16}, *POOL, {"kind": "flatten"}]
CUBES = {"family": "sequential", "input": [1, 16, 16, 16], "layers": [*LAYERS, *DENSE]}
SIZES = {"layers": 2, "hidden": 64, "heads": 4, "sequence": 16, "vocabulary": 32}
WORDS = {"family": "gpt", **SIZES, "dropout": 0.0}


class Network(NamedTuple):
    """What is trained. inside: how a layer is split, in the strategy; part: what such a rank has."""

    model: dict[str, Any]
    dataset: str
    batch: int
    rate: float
    epochs: float
    inside: str
    part: str


NETWORKS = {
    "cubes": Network(CUBES, "densities", 16, 0.001, 0.6, "spatial", "slab"),
    "words": Network(WORDS, "words", 64, 0.1, 0.8, "tensor", "tensor rank"),
}
PARTS = (1, 2, 4, 8)
NAMES = {"3-D network, slabs": "cubes", "GPT, tensor ranks": "words"}


class Setting(NamedTuple):
    """A network, split. inside: ranks that split a layer."""

    network: Annotated[str, Dropdown("Network", "What is trained", NAMES)] = "cubes"
    inside: Annotated[int, Slider("Ranks per layer", "Slabs, or tensor ranks", (1, 2, 4))] = 2
    stages: Annotated[int, Slider("Stages", "Of a pipeline", (1, 2))] = 1
    replicas: Annotated[int, Slider("Replicas", "Data parallelism", (1, 2))] = 1
    microbatches: Annotated[int, Slider("Microbatches", "Of a replica's batch", PARTS)] = 1

    @property
    def ranks(self) -> int:
        """How many ranks run."""
        return self.inside * self.stages * self.replicas

    @property
    def alone(self) -> "Setting":
        """The same network on one rank."""
        return Setting(self.network, 1)


def experiment(setting: Setting) -> Experiment:
    """Return the run: the same global batch in every layout, in float64."""
    model, dataset, batch, rate, epochs, inside, _ = NETWORKS[setting.network]
    ranks = {"nodes": 1, "devices_per_node": setting.ranks}
    split = {inside: setting.inside, "pipeline": setting.stages, "batch": batch // setting.replicas}
    how = {"precision": "fp64", "bucket": 100e3, "microbatches": setting.microbatches}
    return Experiment(
        model=model,
        dataset=dataset,
        machine={"name": "laptop", "devices_per_node": MOST},
        strategy={**ranks, **split, **how},
        training={"rate": rate},
        run={"epochs": epochs},
    )


def problem_of(setting: Setting) -> str:
    """Say why a setting cannot be run, or nothing."""
    if setting.ranks > MOST:
        return f"{setting.ranks} ranks: {MOST} at most here. Take fewer replicas, stages or ranks per layer."
    try:
        experiment(setting)
    except SpecError as reason:
        return str(reason)
    return ""


def asked_words(setting: Setting) -> str:
    """Say what a click would train."""
    network, many = NETWORKS[setting.network], setting.microbatches
    parts = (
        count(setting.replicas, "replica"),
        count(setting.stages, "stage"),
        count(setting.inside, network.part),
    )
    return (
        f"<b>{' × '.join(parts)} = {count(setting.ranks, 'rank')}</b>; {network.batch} samples per step,"
        f" {count(many, 'microbatch')} per replica; float64."
    )
