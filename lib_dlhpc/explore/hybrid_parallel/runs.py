"""Networks small enough to be split on this machine: what can be run, on how many ranks.

cubes   a small 3-D network on density fields: slabs, stages and replicas
words   a small GPT on sentences: tensor ranks, stages and replicas; all three at once on eight ranks
"""

from typing import Any, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.live_run import ranks_in_words, with_rate
from lib_dlhpc.spec.experiment import Experiment, read_experiment

MOST = 8  # ranks
CUBES: dict[str, Any] = {
    "family": "sequential",
    "input": [1, 16, 16, 16],
    "layers": [
        {"kind": "conv", "channels": 8, "kernel": 3, "padding": 1},
        {"kind": "leaky_relu"},
        {"kind": "max_pool", "kernel": 2},
        {"kind": "conv", "channels": 16, "kernel": 3, "padding": 1},
        {"kind": "leaky_relu"},
        {"kind": "max_pool", "kernel": 2},
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
# network -> its model, data, global batch, learning rate, epochs, how a layer is split
NETWORKS: dict[str, tuple[dict[str, Any], str, int, float, float, str]] = {
    "cubes": (CUBES, "densities", 16, 0.001, 0.6, "spatial"),
    "words": (WORDS, "words", 64, 0.1, 0.8, "tensor"),
}
NAMES = {"cubes": "3-D network, slabs", "words": "GPT, tensor ranks"}


class Setting(NamedTuple):
    """What the controls say. inside: ranks that split a layer."""

    network: str = "cubes"
    inside: int = 2
    stages: int = 1
    replicas: int = 1
    microbatches: int = 1

    @property
    def ranks(self) -> int:
        """How many ranks run."""
        return self.inside * self.stages * self.replicas

    @property
    def alone(self) -> "Setting":
        """The same network on one rank."""
        return Setting(self.network, 1)


class Ran(NamedTuple):
    """A run: samples/s, losses on batches and on test samples, s of a step by term."""

    rate: float
    loss: float
    test_loss: float
    terms: dict[str, float]


def ran_of(result: dict[str, Any]) -> Ran:
    """Return a run from its result.json."""
    rate = result["samples"] / result["seconds"]
    return Ran(rate, result["loss"], result["test_loss"], result["terms"])


def experiment(setting: Setting) -> Experiment:
    """Return the run: the same global batch in every layout, in float64."""
    model, dataset, batch, rate, epochs, inside = NETWORKS[setting.network]
    shared = {
        "nodes": 1,
        "devices_per_node": setting.ranks,
        "precision": "fp64",
        "bucket": 100e3,
        inside: setting.inside,
        "pipeline": setting.stages,
        "batch": batch // setting.replicas,
        "microbatches": setting.microbatches,
    }
    return read_experiment(
        {
            "model": model,
            "dataset": dataset,
            "machine": {"name": "laptop", "devices_per_node": MOST},
            "strategy": shared,
            "training": {"rate": rate},
            "run": {"epochs": epochs},
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
    batch, inside = NETWORKS[setting.network][2], {"cubes": "slab", "words": "tensor rank"}
    parts = [
        (setting.replicas, "replica"),
        (setting.stages, "stage"),
        (setting.inside, inside[setting.network]),
    ]
    named = " × ".join(f"{n} {word}{'s' * (n > 1)}" for n, word in parts)
    several = "s" * (setting.microbatches > 1)
    return (
        f"<b>{named} = {ranks_in_words(setting.ranks)}</b>; {batch} samples a step,"
        f" {setting.microbatches} microbatch{'e' * bool(several)}{several} a replica; float64."
    )


def calibrated(setting: Setting, alone: Ran) -> Experiment:
    """Return the run with the rate of one rank in the place of the catalog's laptop."""
    return with_rate(experiment(setting), alone.rate)
