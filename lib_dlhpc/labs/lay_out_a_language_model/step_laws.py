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
from lib_dlhpc.labs.formula_cases import Case, compared, one_term
from lib_dlhpc.labs.lay_out_a_language_model.layout_laws import EXPOSED, block_weights, words_of
from lib_dlhpc.labs.lay_out_a_language_model.layouts import Layout, LayoutTask, predicted
from lib_dlhpc.labs.step_costs import step_costs
from lib_dlhpc.sentences import sentences

say = sentences(__file__)

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
    COMPUTING: say.about_computing,
    BUBBLE: say.about_bubble,
    TENSOR: say.about_tensor,
    DATA: say.about_data,
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
    own = one_term("seconds", seconds, term, NEAR, "seconds")
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
        yield say.not_recomputed, 3 / 4
        yield say.backward_again, 3 / 2
    else:
        yield say.recomputed, 4 / 3
    yield say.one_sequence, 1 / one.microbatches
    for factor in {split, one.tensor, one.context, one.pipeline} - {1}:
        yield say.not_shared, factor
    yield say.replicas_counted, 1 / one.data
    bubble = (one.microbatches + one.pipeline - 1) / one.microbatches
    if bubble > 1 + NEAR[COMPUTING]:
        yield say.bubble_counted, bubble


def _bubble(_: LayoutTask, one: Layout) -> Slips:
    p, m = one.pipeline, one.microbatches
    if one.recompute == "full":
        yield say.bubble_not_recomputed, 3 / 4
    yield say.no_bubble, 0.0
    yield say.one_too_many, p / (p - 1)
    yield say.per_microbatch, m
    yield say.fraction_alone, 1 / m
    yield say.whole_network, p
    yield say.forward_alone, 1 / 3
    yield say.of_the_step, 1 + m / (p - 1)


def _tensor(task: LayoutTask, one: Layout) -> Slips:
    t, full = one.tensor, one.recompute == "full"
    yield say.no_exchange, 0.0
    yield say.exchanges, 10 / 14 if full else 14 / 10
    yield say.exchanges, 4 / (14 if full else 10)
    yield say.exchanges, 1 / (14 if full else 10)
    shares = {say.whole_tokens: one.context, say.all_blocks: one.pipeline}
    for factor in sorted({*shares.values()} - {1}):  # equal degrees are the same factor
        yield " ".join(said for said, degree in shares.items() if degree == factor), factor
    yield say.own_tokens_sent, t / (t - 1)
    yield say.one_byte, 1 / 2
    yield say.one_microbatch, 1 / one.microbatches
    yield say.wrong_link, task.machine.nvlink / task.machine.nic


def _data(task: LayoutTask, one: Layout) -> Slips:
    near, machine = _near(task, one), task.machine
    right = _exchanged(task, one)
    yield say.no_sync, 0.0
    yield say.one_nic, _exchanged(task, one, rate=machine.nic)
    rate = near * machine.nic
    yield say.nics_alone, _exchanged(task, one, rate=rate)
    yield say.nvlink_alone, _exchanged(task, one, rate=machine.nvlink)
    yield say.no_tensor, _exchanged(task, one, one.tensor)
    yield say.no_stages, _exchanged(task, one, one.pipeline)
    yield say.one_byte, _exchanged(task, one, 0.5)
    once = _once(task, one)
    if one.zero == 3:
        yield say.once_per_step, right / one.microbatches
        yield say.nothing_hidden, 3 * once * one.microbatches
        return
    yield say.reduce_exposed, 2 * once
    yield say.no_gather, right - once
    work = task.model.flop / (one.tensor * one.context * one.pipeline) / task.machine.rate
    yield say.no_gather, max(once / one.blocks, 2 * once - work)
    yield say.each_microbatch, right * one.microbatches


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
