"""Fine-tuning: the memory of a step that trains all weights, and of one that trains adapters (LoRA)."""

from functools import lru_cache
from typing import Any

from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.units import format_quantity as show

MODEL, RANK = "llama3-8b", 16
QUERIES = f"rank {RANK}, queries and values"
WAYS: dict[str, dict[str, Any]] = {
    "all weights": {},
    "all weights, all recomputed": {"recompute": "full"},
    QUERIES: {"lora": RANK},
    f"rank {RANK}, all matmuls": {"lora": RANK, "adapted": "all"},
    f"rank {RANK}, all recomputed": {"lora": RANK, "recompute": "full"},
}
# bits of a weight: Dettmers et al. 2023, section 3, with double quantization
NF4 = 4 + 8 / 64 + 32 / (64 * 256)
STATE = ("master weights", "gradients", "optimizer state")
HEAD = ["trained", "weights", "gradients, optimizer", "activations", "all of it", "fits", "step"]


@lru_cache(maxsize=16)
def tuned(**strategy: Any) -> Breakdown:
    """Return the prediction of one sequence of 8,192 tokens on one H100, with Adam in bf16."""
    fixed = {
        "nodes": 1,
        "devices_per_node": 1,
        "batch": 1,
        "precision": "bf16",
        "optimizer": "adam",
    }
    tables = {"model": MODEL, "dataset": "webtext", "machine": "h100-pod"}
    return predict(read_experiment({**tables, "strategy": fixed | strategy}))


def state(step: Breakdown) -> float:
    """Return the bytes of gradients and optimizer state, with its copy of the weights."""
    return sum(float(step.memory[term]) for term in STATE)


def frozen(bits: float = 16.0) -> float:
    """Return the bytes of the weights if those of the blocks' matmuls have `bits`, and all others 16."""
    layers = tuned().experiment.model.layers
    in_blocks = sum(
        layer.parameters for layer in layers if layer.kind == "dense" and "." in layer.name
    )
    others = sum(layer.parameters for layer in layers) - in_blocks
    return in_blocks * bits / 8 + others * 2


def lora_table() -> Table:
    """Return what a GPU holds, and the time of a step, for each way to fine-tune."""
    lines = [HEAD]
    for name, strategy in WAYS.items():
        step = tuned(**strategy)
        sizes = (step.memory["weights"], state(step), step.memory["activations"], step.memory_total)
        fits = "yes" if step.fits else "no"
        held = [show(float(each), "B") for each in sizes]
        lines.append([name, *held, fits, show(float(step.step_time), "s")])
    return Table(lines)
