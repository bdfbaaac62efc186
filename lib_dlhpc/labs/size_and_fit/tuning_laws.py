"""A learner's bytes of fine-tuning and of full training, beside the library's ledger.

tuning_findings(adapters, bits, tuning, state, tasks)    tasks: networks with their adapters
arguments(tasks)                                         what the functions are called with
A wrong value is matched with those that classic mistakes give.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.findings import Finding
from lib_dlhpc.labs.formula_cases import Case, compared
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.adapters import ADAPTER
from lib_dlhpc.spec.experiment import Experiment, read_experiment

say = sentences(__file__)

ADAPTERS = "Adapters: the weights that LoRA trains"
BITS = "Bits: of a frozen weight in NF4, with its scales"
TUNING = "Tuning: bytes of weights, gradients and optimizer state with adapters"
STATE = "State: bytes of full training on a GPU, with ZeRO"
MODELS = ("llama3-8b", "llama2-7b", "llama2-13b", "llama2-70b", "llama3-70b")
NEAR = 1e-6
Formula = Callable[..., Any]


class Tuned(NamedTuple):
    """A network with adapters. block: weights that share a scale; devices, zero: of full training."""

    model: str
    rank: int
    adapted: str
    block: int
    devices: int
    zero: int

    @property
    def words(self) -> str:
        """The task in words."""
        which = "all matmuls of the blocks" if self.adapted == "all" else "queries and values"
        return (
            f"{self.model}, adapters of rank {self.rank} for {which}; NF4 with one scale per {self.block} weights;"
            f" full training on {self.devices} GPUs with ZeRO {self.zero}"
        )


def tuned_of(seed: int, hidden: bool = False) -> list[Tuned]:
    """Return a learner's networks: one with adapters beside queries and values, one beside all matmuls."""
    rng = np.random.default_rng([seed, 15, hidden])
    found = []
    for adapted, zero in (("queries_values", 1), ("all", int(rng.choice((2, 3))))):
        model, rank = str(rng.choice(MODELS)), int(rng.choice((4, 8, 16, 32, 64)))
        block, devices = int(rng.choice((32, 64, 128))), int(rng.choice((8, 16, 64, 256)))
        found.append(Tuned(model, rank, adapted, block, devices, zero))
    return found


@lru_cache(maxsize=32)
def experiment(own: Tuned, lora: bool = True) -> Experiment:
    """Return the run on one GPU, with adapters or without."""
    strategy = {"nodes": 1, "devices_per_node": 1, "batch": 1, "precision": "bf16"}
    strategy |= {"optimizer": "adam"} | ({"lora": own.rank, "adapted": own.adapted} if lora else {})
    tables = {"model": own.model, "dataset": "webtext", "machine": "h100-pod"}
    return read_experiment({**tables, "strategy": strategy})


def whole(own: Tuned) -> int:
    """Return the weights of the network."""
    return int(experiment(own, lora=False).model.parameters)


@lru_cache(maxsize=32)
def shapes(own: Tuned) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return the inputs and outputs of the matmuls of a block beside which there are adapters, and the blocks."""
    layers = experiment(own).model.layers
    inputs = {each.name: each.input_shape[-1] for each in layers}
    found = [
        (inputs[each.inputs[1]], width)
        for each in layers
        if each.kind == ADAPTER
        for width in each.attributes["widths"]
    ]
    blocks = sum("attention" in each.kind for each in layers)
    return tuple(found[: len(found) // blocks]), blocks


def trained(own: Tuned) -> int:
    """Return the weights of all adapters."""
    return int(experiment(own).model.parameters) - whole(own)


def matmuls(own: Tuned) -> int:
    """Return the weights of the blocks' matmuls, which NF4 stores."""
    layers = experiment(own, lora=False).model.layers
    return int(sum(each.parameters for each in layers if each.kind == "dense" and "." in each.name))


def tuning_findings(
    adapters: Formula, bits: Formula, tuning: Formula, state: Formula, tasks: Sequence[Tuned]
) -> list[Finding]:
    """Return whether the four formulas give what the library counts, for all tasks."""
    blocks = (16, 32, 64, 128, 256)
    return [
        compared(ADAPTERS, adapters, map(_adapters, tasks), say.done, NEAR),
        compared(BITS, bits, map(_bits, blocks), say.bits_done, NEAR),
        compared(TUNING, tuning, _tunings(tasks), say.done, NEAR, "B"),
        compared(STATE, state, _states(tasks), say.done, NEAR, "B"),
    ]


def arguments(tasks: Sequence[Tuned]) -> dict[str, list[tuple[Any, ...]]]:
    """Return what the functions are called with, by their names."""
    return {
        "adapters": [_adapters(own).arguments for own in tasks],
        "bits": [(own.block,) for own in tasks],
        "tuning": [each.arguments for each in _tunings(tasks)],
        "state": [_state(own).arguments for own in tasks],
    }


def _adapters(own: Tuned) -> Case:
    block, blocks = shapes(own)
    rank, right = own.rank, float(trained(own))
    slips = [
        (say.one_block, right / blocks),
        (say.product, float(blocks * sum(rank * i * o for i, o in block))),
        *_alone(blocks * rank * sum(i for i, _ in block), blocks * rank * sum(o for _, o in block)),
        (say.frozen_counted, float(blocks * sum(i * o for i, o in block))),
    ]
    return Case(own.words, (block, blocks, rank), right, slips, say.about_adapters)


def _alone(reads: int, writes: int) -> list[tuple[str, float]]:
    """Return the hints at a half of the adapters, which square matrices do not tell apart."""
    if reads == writes:
        return [(say.one_half, float(reads))]
    return [(say.only_a, float(reads)), (say.only_b, float(writes))]


def nf4(block: int) -> float:
    """Return the bits of a weight: Dettmers et al. 2023, section 3, with double quantization."""
    return 4 + 8 / block + 32 / (block * 256)


def _bits(block: int) -> Case:
    slips = [
        (say.no_scales, 4.0),
        (say.wide_scales, 4 + 32 / block),
        (say.no_second_scales, 4 + 8 / block),
        (say.per_256_weights, 4 + 8 / block + 32 / 256),
        (say.added_32, 4 + (8 + 32) / block),
        (say.per_weight, 4 + 8 + 32 / 256),
        (say.in_bytes, nf4(block) / 8),
    ]
    return Case(f"One scale per {block} weights", (block,), nf4(block), slips, say.about_bits)


def _tunings(tasks: Sequence[Tuned]) -> list[Case]:
    return [_tuning(own, bits) for own in tasks for bits in (16.0, nf4(own.block))]


def _tuning(own: Tuned, bits: float) -> Case:
    inside, some = matmuls(own), trained(own)
    others, frozen = whole(own) - inside, inside * bits / 8
    right = frozen + 2 * others + 16 * some
    slips = [
        (say.frozen_gradients, right + 2 * (inside + others)),
        (say.frozen_state, right + 14 * (inside + others)),
        (say.no_adapters, right - 2 * some),
        (say.others_trained, right + 14 * others),
        (say.short_adam, right - 4 * some),
        (say.short_adam, right - 12 * some),
        (say.bits_as_bytes, 8 * frozen + 2 * others + 16 * some),
        (say.all_in_bits, (inside + others) * bits / 8 + 16 * some),
        (say.no_others, frozen + 16 * some),
    ]
    about = f"{own.words.partition(';')[0]}, frozen in {bits:.4g} bits"
    kept = [each for each in slips if each[1] != right]
    return Case(about, (inside, others, some, bits), right, kept, say.about_tuning)


def shard(weights: int, devices: int, zero: int) -> float:
    """Return the bytes of weights, gradients and optimizer state on a GPU (Rajbhandari et al. 2020, section 5)."""
    parts = (
        2 / (devices if zero > 2 else 1),
        2 / (devices if zero > 1 else 1),
        12 / (devices if zero else 1),
    )
    return weights * sum(parts)


def _states(tasks: Sequence[Tuned]) -> list[Case]:
    """Return the cases of the tasks as they are, then those of the other levels."""
    others = [own._replace(zero=zero) for own in tasks for zero in range(4) if zero != own.zero]
    return [_state(own) for own in (*tasks, *others)]


def _state(own: Tuned) -> Case:
    weights = whole(own)
    right = shard(weights, own.devices, own.zero)
    slips = [
        (f"Those are the bytes of ZeRO {zero}.", shard(weights, own.devices, zero))
        for zero in range(4)
        if zero != own.zero
    ]
    share = 12 / (own.devices if own.zero else 1)
    slips += [
        (say.no_copy, right - weights * share / 3),
        ("Gradients?", right - weights * 2 / (own.devices if own.zero > 1 else 1)),
        (say.all_gpus, right * own.devices),
    ]
    hint = (
        "How many bytes per weight are the weight, its gradient and its optimizer state, and which of the three does"
        f" ZeRO {own.zero} divide among the GPUs?"
    )
    about = own.words.rpartition("; ")[2]
    return Case(about, (weights, own.devices, own.zero), right, slips, hint)


def saved(own: Tuned) -> float:
    """Return how many times as much full training stores without ZeRO as adapters on weights in NF4."""
    inside, some = matmuls(own), trained(own)
    stored = inside * nf4(own.block) / 8 + 2 * (whole(own) - inside) + 16 * some
    return shard(whole(own), 1, 0) / stored
