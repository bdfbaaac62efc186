"""A learner's formulas compared with the library's: model state, stored activations, compute time of a step.

state_finding(state, parameters)           weights, gradients and optimizer state, ZeRO 0 to 3
activations_finding(activations, own)      a block of a transformer, tensor-parallel and recomputed
seconds_finding(seconds, seed)             compute, recomputation and the bubble of a pipeline
A wrong value is matched with those that classic mistakes give.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from lib_dlhpc.costs.state import model_state_bytes
from lib_dlhpc.costs.stored_activations import stored_bytes
from lib_dlhpc.labs.findings import Finding
from lib_dlhpc.labs.formula_cases import Case, compared
from lib_dlhpc.prediction.hybrid import rank_parts
from lib_dlhpc.spec.experiment import Experiment

MIXED = (2, 2, 12)  # B of a weight: bf16 weight and gradient; fp32 weight and Adam's two memories
PLAIN = (4, 4, 4)  # fp32 and momentum
STATE = "Weights, gradients, optimizer: what a GPU stores"
KEPT = "Activations: what a block stores for backward"
TIME = "Time: how long the GPUs compute, and wait for the pipeline"
# samples, tensor group, recomputation; the simple ones first
BLOCKS = (
    (1, 1, "none"),
    (3, 1, "none"),
    (3, 1, "full"),
    (2, 1, "selective"),
    (1, 4, "none"),
    (2, 2, "selective"),
    (1, 4, "full"),
)
# stages, microbatches, recomputation
STEPS = ((1, 1, "none"), (4, 8, "none"), (1, 1, "full"), (4, 4, "full"), (8, 64, "selective"))
DIVIDED = "Which of weights, gradients and optimizer state does ZeRO {} divide, and by how much?"
STORED = (
    "Add what norms and dropouts, the pairs of matmuls, and the scores store. Which of the three does a tensor group"
    " shard, and which is recomputed?"
)
WAITED = "First compute the work of a GPU, including recomputation; then add the bubble, which is proportional to it."


def state_finding(state: Callable[..., Any], parameters: int) -> Finding:
    """Return whether `state(parameters, each, data, zero)` is the library's ledger."""
    cases = [_mixed(parameters, zero, data) for zero, data in product(range(4), (1, 4, 32))]
    for zero, data in ((0, 1), (3, 8)):
        words = "The bytes of a weight, a gradient and the optimizer state are given in `each`."
        slips = [(words, sum(MIXED) * 1000 / data)]
        about = f"fp32 and momentum, ZeRO {zero} over {data}"
        right = sum(PLAIN) * 1000 / data
        cases.append(Case(about, (1000, PLAIN, data, zero), right, slips, DIVIDED.format(zero)))
    return compared(STATE, state, cases, "For all ZeRO stages, as in the library's ledger.")


def _mixed(parameters: int, zero: int, data: int) -> Case:
    right = float(model_state_bytes(parameters, "bf16", "adam", data, zero))
    w, g, rest = (parameters * size for size in MIXED)
    further = (
        "1: optimizer; 2: gradients as well; 3: weights as well. Your formula divides one term too many, or one too"
        " few."
    )
    slips = [
        ("No GPU stores all of what this ZeRO stage shards.", w + g + rest),
        (
            "Only stage 3 shards the weights: which GPU stores all of them in the other stages?",
            (w + g + rest) / data,
        ),
        ("The fp32 weights belong to the optimizer as well.", w + g + (rest * 2 / data + rest) / 3),
        (further, w + (g + rest) / data),
        (further, w + g + rest / data),
        (
            "Each ZeRO stage shards everything that the previous stage shards, and one thing more.",
            w + g / data + rest,
        ),
        (
            "Each ZeRO stage shards everything that the previous stage shards, and one thing more.",
            w / data + g + rest,
        ),
    ]
    about = f"ZeRO {zero} over {data} replica{'s' * (data > 1)}"
    return Case(about, (parameters, MIXED, data, zero), right, slips, DIVIDED.format(zero))


def block_bytes(one: Callable[..., Experiment], samples: int, tensor: int, recompute: str) -> float:
    """Return the bytes that a block stores on a GPU, by the library. one(layers, **strategy): a run of N layers."""
    found = []
    for layers in (2, 3):
        parts = rank_parts(one(layers, tensor=tensor, recompute=recompute))
        found.append(stored_bytes(parts[0][0][0], 2, recompute))
    return samples * (found[1] - found[0])


def activations_finding(
    activations: Callable[..., Any], one: Callable[..., Experiment], shape: tuple[int, int, int]
) -> Finding:
    """Return whether `activations(s, b, h, a, t, recompute)` is the library's; shape: s, h, a."""
    s, h, a = shape
    cases = []
    for samples, tensor, recompute in BLOCKS:
        right = block_bytes(one, samples, tensor, recompute)
        area, scores = samples * s * h, 5 * a * s / h
        split = 34 if tensor == 1 else 10 + 24 / tensor
        slips = [
            ("That is only the input of the block. What do the layers inside store?", 2 * area),
            ("That leaves out the attention scores, s x s numbers per head.", split * area),
            (
                "Everything between the pairs of matmuls is replicated on each GPU: norms, two dropouts, the input of"
                " each pair.",
                area * (34 + scores) / tensor,
            ),
            (
                "Everything inside a pair of matmuls is sharded, and so are the scores.",
                area * (34 + scores),
            ),
            ("Twice as many samples store twice as much.", right / samples),
            ("Numbers take 2 B here, those of a dropout mask 1 B.", 2 * right),
            (
                "The scores of each head are on only one GPU.",
                right + area * (scores - scores / tensor),
            ),
            (
                "Of the factor 34, a tensor group shards the 24.",
                right + area * 14 * (1 - 1 / tensor),
            ),
        ]
        if recompute != "none":
            slips.insert(
                0, ("Whatever is recomputed is not stored.", area * (split + scores / tensor))
            )
        if recompute == "full":
            slips.insert(0, ("The input of the block takes 2 bytes per number.", right / 2))
            whole = "Each GPU of a tensor group stores all of the block's input."
            slips.insert(0, (whole, right / tensor))
        if recompute == "selective":
            words = "Selective: the scores are recomputed, and nothing else."
            slips.insert(0, (words, 2 * area))
        about = f"{samples} sample{'s' * (samples > 1)}, tensor {tensor}, recompute {recompute}"
        given = (s, samples, h, a, tensor, recompute)
        cases.append(Case(about, given, right, slips, STORED))
    return compared(KEPT, activations, cases, "As the library counts them, layer by layer.")


def seconds_finding(seconds: Callable[..., Any], seed: int) -> Finding:
    """Return whether `seconds(alone, gpus, p, m, recompute)` is that of a pipeline of equal stages."""
    rng, cases = np.random.default_rng([seed, 7]), []
    for p, m, recompute in STEPS:
        alone, gpus = float(rng.integers(20, 200)), int(rng.choice([16, 32]))
        again, waits = (4 / 3 if recompute == "full" else 1), 1 + (p - 1) / m
        share = alone / gpus
        right = share * again * waits
        part = "Backward takes twice as long as forward. What share of both is recomputed?"
        slips = [
            ("Which stages wait for the first microbatch, and which for the last?", share * again),
            (
                "A single stage has no bubble, because it waits for no other stage.",
                share * again * (1 + p / m),
            ),
            ("The stages of a pipeline are already included in the number of GPUs.", right / p),
            ("The bubble comes on top of the computation.", share * again * (waits - 1)),
            (
                "A fraction of the whole step is a larger fraction of the computation alone.",
                share * again * (1 + (p - 1) / (m + p - 1)),
            ),
        ]
        slips += {
            "none": [("Nothing is recomputed here.", share * 4 / 3 * waits)],
            "selective": [
                ("You may neglect the time of selective recomputation.", share * 4 / 3 * waits)
            ],
            "full": [
                ("Recomputation takes time.", share * waits),
                (part, share * 2 * waits),
                (part, share * 1.5 * waits),
                (
                    "Stages recompute in each backward pass, so the bubble grows, too.",
                    share * (waits + 1 / 3),
                ),
            ],
        }[recompute]
        split = f"{p} stage{'s' * (p > 1)}, {m} microbatch{'es' * (m > 1)}"
        about = f"{alone:g} s on one of {gpus} GPUs, {split}, recompute {recompute}"
        cases.append(Case(about, (alone, gpus, p, m, recompute), right, slips, WAITED))
    return compared(TIME, seconds, cases, "Messages and uneven stages come on top.")
