"""A learner's time of a step beside the library's prediction, term by term.

seconds(model, machine, layout)  s of a step, {term: s} with at least the terms of NEAR
Each term is compared where its closed form is close to the prediction; a wrong value is matched with those that classic
mistakes give.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from lib_dlhpc.labs.findings import Finding
from lib_dlhpc.labs.formula_cases import Case, compared, value_of
from lib_dlhpc.labs.lay_out_a_language_model.layout_laws import EXPOSED, block_weights, words_of
from lib_dlhpc.labs.lay_out_a_language_model.layouts import Layout, LayoutTask, predicted
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.step_costs import step_costs

COMPUTING, BUBBLE = "computing", "bubble"
TENSOR, DATA = "tensor exchanges", "weights and gradients"
NEAR = {COMPUTING: 0.10, BUBBLE: 0.20, TENSOR: 0.15, DATA: 0.30}  # of the term, as predicted
ARITHMETIC, FILLING, TENSORS, REPLICAS = (
    f"Time: {term}, to {near:.0%}" for term, near in NEAR.items()
)
LAWS = dict(zip(NEAR, (ARITHMETIC, FILLING, TENSORS, REPLICAS), strict=True))
COSTS = {  # the terms of a prediction that belong to one of a learner's
    COMPUTING: ("computing", "recomputation"),
    BUBBLE: ("pipeline bubble",),
    TENSOR: (EXPOSED["tensor"],),
    DATA: (EXPOSED["data"],),
}
SMALL = 0.03  # of a step: what an overlapped exchange may be off in any case
SLOW, NICS = "ethernet-100g", 4  # on which no exchange of weights is negligible
CASES = {  # tensor, context, pipeline, zero, recompute: the simple ones first
    COMPUTING: (
        (1, 1, 1, 1, "none"),
        (1, 1, 1, 1, "full"),
        (1, 1, 4, 1, "none"),
        (2, 2, 2, 1, "full"),
    ),
    BUBBLE: ((1, 1, 2, 1, "none"), (1, 1, 4, 1, "none"), (2, 1, 2, 1, "full")),
    TENSOR: (
        (2, 1, 1, 1, "none"),
        (8, 1, 1, 1, "none"),
        (4, 1, 1, 1, "full"),
        (2, 2, 2, 1, "full"),
    ),
    DATA: (
        (2, 1, 1, 1, "none"),
        (1, 1, 1, 1, "none"),
        (1, 1, 2, 1, "none"),
        (2, 1, 1, 3, "none"),
        (2, 2, 1, 3, "none"),
    ),
}
HINTS = {
    COMPUTING: "Count the FLOP of a microbatch, the devices that share it, and the microbatches of a replica.",
    BUBBLE: "For how many microbatches does a stage wait, and how long does one of them take?",
    TENSOR: "Count exchanges per block, blocks per stage, bytes per exchange, and the link inside a node.",
    DATA: (
        "Count the bytes of a group, how often they are sent in a step, on which link, and which computation hides"
        " them."
    ),
}


def seconds_findings(seconds: Callable[..., Any], task: LayoutTask) -> list[Finding]:
    """Return for each term of a step whether a learner's seconds are those of the prediction."""
    known = {(o.tensor, o.context, o.pipeline, o.zero, o.recompute): o for o in task.layouts}
    tasks = dict.fromkeys(NEAR, task) | {DATA: replace(task, network=SLOW, nics=NICS)}
    return [
        _term_finding(seconds, tasks[term], [known[each] for each in CASES[term]], term)
        for term in NEAR
    ]


def _term_finding(
    seconds: Callable[..., Any], task: LayoutTask, layouts: list[Layout], term: str
) -> Finding:
    def own(model: Any, machine: Any, layout: Any) -> float:
        found = seconds(model, machine, layout)
        if not isinstance(found, dict) or term not in found:
            legal = ", ".join(map(repr, NEAR))
            raise LabError(f"seconds returns {{term: seconds}} with the terms {legal}.")
        return value_of(lambda: found[term])

    own.__name__ = "seconds"
    cases = []
    for one in layouts:
        costs, step = _costs(task, one)
        right = sum(costs[each] for each in COSTS[term])
        if term == DATA:
            slips, least = list(_data(task, one)), SMALL * step
        else:
            factors = FACTORS[term](task, one)
            slips, least = [(words, right * factor) for words, factor in factors], 0.0
        given = task.model, task.machine, one
        cases.append(Case(words_of(one), given, right, slips, HINTS[term], least))
    done = f"In {len(cases)} layouts, compared with the library's prediction."
    return compared(LAWS[term], own, cases, done, NEAR[term], "s")


@cache
def _costs(task: LayoutTask, one: Layout) -> tuple[dict[str, float], float]:
    """Return the s of a layout's step by cause, and of all of it; every check of every term asks for the same few."""
    found = predicted(task, one)
    return step_costs(found, EXPOSED), float(found.step_time)


# What a value may have left out, with that value or the factor that it is off by.
Slips = Iterator[tuple[str, float]]


def _computing(_: LayoutTask, one: Layout) -> Slips:
    split = one.tensor * one.context * one.pipeline
    again = one.recompute == "full"
    if again:
        yield "Full recomputation repeats the forward pass, a third of the arithmetic.", 3 / 4
        yield "Full recomputation repeats forward, but not backward.", 3 / 2
    else:
        yield "Nothing is recomputed here.", 4 / 3
    yield "`model.flop` is for one sequence, and a replica computes several.", 1 / one.microbatches
    words = "Tensor, context and pipeline ranks share the arithmetic of a microbatch."
    for factor in {split, one.tensor, one.context, one.pipeline} - {1}:
        yield words, factor
    yield "The replicas are already in `microbatches`.", 1 / one.data
    bubble = (one.microbatches + one.pipeline - 1) / one.microbatches
    if bubble > 1 + NEAR[COMPUTING]:
        yield "The bubble is a separate term.", bubble


def _bubble(_: LayoutTask, one: Layout) -> Slips:
    p, m = one.pipeline, one.microbatches
    if one.recompute == "full":
        yield "A waiting stage also waits for recomputation.", 3 / 4
    yield "The last stage waits while the pipeline fills, the first while it drains.", 0.0
    yield (
        "The first stage starts at once: a stage waits for p - 1 microbatches, not p.",
        p / (p - 1),
    )
    yield "A bubble lasts p - 1 microbatches, however many there are.", m
    yield "(p - 1) / m is a fraction of the computing: multiply it by that.", 1 / m
    yield "A stage waits for the microbatches of one stage, not of the whole network.", p
    yield "A bubble is a wait for both forward and backward passes.", 1 / 3
    yield (
        "The bubble over the work is (p - 1) / m; the computing is a separate term.",
        1 + m / (p - 1),
    )


def _tensor(task: LayoutTask, one: Layout) -> Slips:
    t, full = one.tensor, one.recompute == "full"
    yield "Every block waits for its tensor group.", 0.0
    words = "Count the exchanges of a block: ten, and fourteen with full recomputation."
    yield words, 10 / 14 if full else 14 / 10
    yield words, 4 / (14 if full else 10)
    yield words, 1 / (14 if full else 10)
    shares = {
        "Context ranks share the tokens, and hence the bytes.": one.context,
        "A stage exchanges only in its own blocks.": one.pipeline,
    }
    for factor in sorted({*shares.values()} - {1}):  # equal degrees are the same factor
        yield " ".join(said for said, degree in shares.items() if degree == factor), factor
    yield "A rank already has 1/t of the tokens: (t - 1)/t of them are sent.", t / (t - 1)
    yield "A number in bf16 takes 2 B.", 1 / 2
    yield "Each of the replica's microbatches pays the exchanges.", 1 / one.microbatches
    yield (
        "A tensor group is inside a node: which link is that?",
        task.machine.nvlink / task.machine.nic,
    )


def _data(task: LayoutTask, one: Layout) -> Slips:
    near, machine = _near(task, one), task.machine
    right = _exchanged(task, one)
    yield "Replicas exchange weights and gradients in each step.", 0.0
    together = "The ranks of a group in the same node use their NICs together."
    yield together, _exchanged(task, one, rate=machine.nic)
    rate = near * machine.nic
    yield "Their NICs together are not faster than NVLink.", _exchanged(task, one, rate=rate)
    yield "NVLink ends at the node.", _exchanged(task, one, rate=machine.nvlink)
    yield "A tensor group shards the weights.", _exchanged(task, one, one.tensor)
    yield "A stage has only the weights of its own blocks.", _exchanged(task, one, one.pipeline)
    yield "A number in bf16 takes 2 B.", _exchanged(task, one, 0.5)
    once = _once(task, one)
    if one.zero == 3:
        yield "ZeRO 3 gathers and reduces in each microbatch.", right / one.microbatches
        yield "Computation hides part of the exchanges of ZeRO 3.", 3 * once * one.microbatches
        return
    yield (
        "ZeRO 1 reduces gradients during the last backward pass, which hides part of the exchange.",
        2 * once,
    )
    words = "ZeRO 1 gathers the weights after the update, which nothing hides."
    yield words, right - once
    work = task.model.flop / (one.tensor * one.context * one.pipeline) / task.machine.rate
    yield words, max(once / one.blocks, 2 * once - work)
    words = "ZeRO 1 exchanges once per step, not in each microbatch."
    yield words, right * one.microbatches


def _near(task: LayoutTask, one: Layout) -> int:
    """Return how many ranks with the same weights are in a node."""
    return min(one.data * one.context, task.machine.per_node // one.tensor)


def _once(task: LayoutTask, one: Layout, size: float = 1.0, rate: float = 0.0) -> float:
    """Return the s of one gather. size: of the weights, as a multiple; rate: of the link, if another."""
    group, near, machine = one.data * one.context, _near(task, one), task.machine
    if not rate:
        rate = machine.nvlink if near == group else min(machine.nvlink, near * machine.nic)
    tables = (2 if one.pipeline == 1 else 1) * task.model.vocabulary * task.model.hidden
    weights = size * (one.blocks * block_weights(task) + tables) / one.tensor
    return 2 * weights * (group - 1) / group / rate


def _exchanged(task: LayoutTask, one: Layout, size: float = 1.0, rate: float = 0.0) -> float:
    """Return the exposed s of weights and gradients by the closed form of the notebook."""
    once = _once(task, one, size, rate)
    split = one.tensor * one.context * one.pipeline
    work, first = task.model.flop / split / task.machine.rate, once / one.blocks
    if one.zero == 1:
        return max(first, once - work * 2 / 3) + once
    passes = max(first, once - work / 3) + max(2 * first, 2 * once - work * 2 / 3)
    return one.microbatches * passes


FACTORS: dict[str, Callable[[LayoutTask, Layout], Slips]] = {
    COMPUTING: _computing,
    BUBBLE: _bubble,
    TENSOR: _tensor,
}
