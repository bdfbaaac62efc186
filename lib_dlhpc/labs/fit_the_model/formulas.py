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

from lib_dlhpc.costs.model_state import model_state_bytes
from lib_dlhpc.costs.stored_activations import stored_bytes
from lib_dlhpc.labs.findings import Finding
from lib_dlhpc.labs.formula_cases import Case, compared
from lib_dlhpc.prediction.memory.rank_parts import rank_parts
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.experiment import Experiment

say = sentences(__file__)

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


def state_finding(state: Callable[..., Any], parameters: int) -> Finding:
    """Return whether `state(parameters, each, data, zero)` is the library's ledger."""
    cases = [_mixed(parameters, zero, data) for zero, data in product(range(4), (1, 4, 32))]
    for zero, data in ((0, 1), (3, 8)):
        slips = [(say.fixed_bytes, sum(MIXED) * 1000 / data)]
        about = f"fp32 and momentum, ZeRO {zero} over {data}"
        right = sum(PLAIN) * 1000 / data
        cases.append(
            Case(about, (1000, PLAIN, data, zero), right, slips, say.about_zero.format(zero))
        )
    return compared(STATE, state, cases, say.state_done)


def _mixed(parameters: int, zero: int, data: int) -> Case:
    right = float(model_state_bytes(parameters, "bf16", "adam", data, zero))
    w, g, rest = (parameters * size for size in MIXED)
    slips = [
        (say.nothing_sharded, w + g + rest),
        (say.all_sharded, (w + g + rest) / data),
        (say.no_fp32_weights, w + g + (rest * 2 / data + rest) / 3),
        (say.one_term_off, w + (g + rest) / data),
        (say.one_term_off, w + g + rest / data),
        (say.not_cumulative, w + g / data + rest),
        (say.not_cumulative, w / data + g + rest),
    ]
    about = f"ZeRO {zero} over {data} replica{'s' * (data > 1)}"
    return Case(about, (parameters, MIXED, data, zero), right, slips, say.about_zero.format(zero))


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
            (say.input_alone, 2 * area),
            (say.no_scores, split * area),
            (say.all_over_tensor, area * (34 + scores) / tensor),
            (say.nothing_over_tensor, area * (34 + scores)),
            (say.one_sample, right / samples),
            (say.elements, 2 * right),
            (say.all_scores, right + area * (scores - scores / tensor)),
            (say.part_of_24, right + area * 14 * (1 - 1 / tensor)),
        ]
        if recompute != "none":
            slips.insert(0, (say.not_recomputed, area * (split + scores / tensor)))
        if recompute == "full":
            slips.insert(0, (say.input_elements, right / 2))
            slips.insert(0, (say.input_sharded, right / tensor))
        if recompute == "selective":
            slips.insert(0, (say.only_input, 2 * area))
        about = f"{samples} sample{'s' * (samples > 1)}, tensor {tensor}, recompute {recompute}"
        given = (s, samples, h, a, tensor, recompute)
        cases.append(Case(about, given, right, slips, say.about_stored))
    return compared(KEPT, activations, cases, say.stored_done)


def seconds_finding(seconds: Callable[..., Any], seed: int) -> Finding:
    """Return whether `seconds(alone, gpus, p, m, recompute)` is that of a pipeline of equal stages."""
    rng, cases = np.random.default_rng([seed, 7]), []
    for p, m, recompute in STEPS:
        alone, gpus = float(rng.integers(20, 200)), int(rng.choice([16, 32]))
        again, waits = (4 / 3 if recompute == "full" else 1), 1 + (p - 1) / m
        share = alone / gpus
        right = share * again * waits
        slips = [
            (say.no_bubble, share * again),
            (say.one_too_many, share * again * (1 + p / m)),
            (say.stages_twice, right / p),
            (say.bubble_alone, share * again * (waits - 1)),
            (say.of_the_step, share * again * (1 + (p - 1) / (m + p - 1))),
        ]
        slips += {
            "none": [(say.recomputed, share * 4 / 3 * waits)],
            "selective": [(say.selective_time, share * 4 / 3 * waits)],
            "full": [
                (say.no_recomputation, share * waits),
                (say.wrong_share, share * 2 * waits),
                (say.wrong_share, share * 1.5 * waits),
                (say.bubble_not_recomputed, share * (waits + 1 / 3)),
            ],
        }[recompute]
        split = f"{p} stage{'s' * (p > 1)}, {m} microbatch{'es' * (m > 1)}"
        about = f"{alone:g} s on one of {gpus} GPUs, {split}, recompute {recompute}"
        cases.append(Case(about, (alone, gpus, p, m, recompute), right, slips, say.about_time))
    return compared(TIME, seconds, cases, say.time_done)
