"""Networks small enough to be split on this machine: what can be run, on how many ranks.

A 3-D network on density fields, in slabs, stages and replicas; a GPT on sentences, in tensor ranks, stages and
replicas, all three at once on eight ranks.
"""

from typing import Annotated, Any, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider
from lib_dlhpc.explore.blocks.live_run import ranks_in_words
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import count

MOST = 8  # ranks


def _conv(channels: int) -> list[dict[str, Any]]:
    return [
        {"kind": "conv", "channels": channels, "kernel": 3, "padding": 1},
        {"kind": "leaky_relu"},
        {"kind": "max_pool", "kernel": 2},
    ]


CUBES: dict[str, Any] = {
    "family": "sequential",
    "input": [1, 16, 16, 16],
    "layers": [
        *_conv(8),
        *_conv(16),
        {"kind": "flatten"},
        {"kind": "dense", "features": 32},
        {"kind": "leaky_relu"},
        {"kind": "dense", "features": 2},
    ],
}
WORDS: dict[str, Any] = {
    "family": "gpt",
    "layers": 2,
    "hidden": 64,
    "heads": 4,
    "sequence": 16,
    "vocabulary": 32,
    "dropout": 0.0,
}


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
NAMES = {"3-D network, slabs": "cubes", "GPT, tensor ranks": "words"}


class Setting(NamedTuple):
    """A network, split. inside: ranks that split a layer."""

    network: Annotated[str, Dropdown("Network", "What is trained", NAMES)] = "cubes"
    inside: Annotated[int, Slider("Ranks a layer", "Slabs, or tensor ranks", (1, 2, 4))] = 2
    stages: Annotated[int, Slider("Stages", "Of a pipeline", (1, 2))] = 1
    replicas: Annotated[int, Slider("Replicas", "Data parallelism", (1, 2))] = 1
    microbatches: Annotated[int, Slider("Microbatches", "Of a replica's batch", (1, 2, 4, 8))] = 1

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
    network = NETWORKS[setting.network]
    return read_experiment(
        {
            "model": network.model,
            "dataset": network.dataset,
            "machine": {"name": "laptop", "devices_per_node": MOST},
            "strategy": {
                "nodes": 1,
                "devices_per_node": setting.ranks,
                "precision": "fp64",
                "bucket": 100e3,
                network.inside: setting.inside,
                "pipeline": setting.stages,
                "batch": network.batch // setting.replicas,
                "microbatches": setting.microbatches,
            },
            "training": {"rate": network.rate},
            "run": {"epochs": network.epochs},
        }
    )


def problem_of(setting: Setting) -> str:
    """Say why a setting cannot be run, or nothing."""
    if setting.ranks > MOST:
        return f"{setting.ranks} ranks: {MOST} at most here. Take fewer replicas, stages or ranks a layer."
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
        f"<b>{' × '.join(parts)} = {ranks_in_words(setting.ranks)}</b>; {network.batch} samples a step,"
        f" {many} microbatch{'es' * (many > 1)} a replica; float64."
    )
