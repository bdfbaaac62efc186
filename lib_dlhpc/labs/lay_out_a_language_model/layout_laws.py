"""A learner's bytes of a device beside the ledger's, term by term, and a learner's layout beside the fastest.

memory(model, layout)            B of a device of the first stage at its peak, {term: B} for each of TERMS
choose(model, machine, layouts)  one of the layouts
A wrong value is matched with those that classic mistakes give.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lib_dlhpc.labs.findings import Finding, broken, kept, later
from lib_dlhpc.labs.formula_cases import Case, compared, one_term
from lib_dlhpc.labs.lay_out_a_language_model.layouts import (
    TERMS,
    Layout,
    LayoutTask,
    fastest,
    first_stage,
    predicted,
)
from lib_dlhpc.labs.mistakes import LabError, explained
from lib_dlhpc.labs.step_costs import most_above, step_costs
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.prediction.memory.rank_memory import peak
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.units import format_quantity as show

say = sentences(__file__)

CLOSE = 0.004  # of a term: norms and statistics of the softmax are neglected
MARGIN = 0.10  # of the fastest step
WEIGHTS, GRADIENTS = "Memory: weights", "Memory: gradients"
STATE, ACTIVATIONS = "Memory: optimizer state", "Memory: activations"
LAWS = dict(zip(TERMS, (WEIGHTS, GRADIENTS, STATE, ACTIVATIONS), strict=True))
FITS = "The layout: legal, and it fits"
QUICK = f"Target: a step within {MARGIN:.0%} of the fastest layout that fits"
SIMPLE = (  # tensor, context, pipeline, zero, recompute: the simple ones first
    (1, 1, 1, 1, "none"),
    (2, 1, 1, 1, "none"),
    (1, 1, 4, 1, "none"),
    (1, 2, 1, 1, "none"),
    (1, 1, 1, 3, "none"),
    (2, 2, 2, 1, "none"),
    (1, 1, 1, 1, "full"),
    (4, 2, 2, 3, "full"),
    (1, 2, 4, 3, "none"),
)
EXPOSED = {
    "tensor": "exposed messages of tensor groups",
    "context": "exposed messages of context ranks",
    "data": "exposed messages of weights and gradients",
    "pipeline": "exposed messages of stages",
}
HINTS = {
    "computing": say.computing,
    "recomputation": say.recomputation,
    "pipeline bubble": say.bubble,
    "updates": say.updates,
    EXPOSED["tensor"]: say.tensor_exchanges,
    EXPOSED["context"]: say.context_exchanges,
    EXPOSED["data"]: say.weight_exchanges,
    EXPOSED["pipeline"]: say.stage_messages,
}


def words_of(one: Layout) -> str:
    """Return a layout in words."""
    return (
        f"tensor {one.tensor}, context {one.context}, data {one.data}, pipeline {one.pipeline}, ZeRO {one.zero},"
        f" {one.microbatches} microbatches, recompute {one.recompute}"
    )


def memory_findings(memory: Callable[..., Any], task: LayoutTask) -> list[Finding]:
    """Return for each term whether a learner's bytes are the ledger's."""
    known = {(o.tensor, o.context, o.pipeline, o.zero, o.recompute): o for o in task.layouts}
    cases = [known[each] for each in SIMPLE]
    return [_term_finding(memory, task, cases, term) for term in TERMS]


def _term_finding(
    memory: Callable[..., Any], task: LayoutTask, layouts: Sequence[Layout], term: str
) -> Finding:
    own = one_term("memory", memory, term, TERMS, "bytes")
    cases = [
        Case(
            words_of(one),
            (task.model, one),
            first_stage(task, one)[term],
            list(_slips(task, one, term)),
            say.count_stored if term == "activations" else say.count_weights,
        )
        for one in layouts
    ]
    done = f"In {len(cases)} layouts, as in the library's ledger."
    return compared(LAWS[term], own, cases, done, CLOSE, "B")


def _slips(task: LayoutTask, one: Layout, term: str) -> Iterator[tuple[str, float]]:
    """Yield what a value may have left out, and that value."""
    right = first_stage(task, one)[term]
    if term == "activations":
        yield from _activation_slips(task, one, right)
    else:
        yield from _state_slips(task, one, term, right)


def _state_slips(
    task: LayoutTask, one: Layout, term: str, right: float
) -> Iterator[tuple[str, float]]:
    yield from _sharding_slips(one, term, right)
    yield from _stage_slips(task, one, term, right)
    model, kv = task.model, _kv(task)
    scale = _each(task, one, term) * one.blocks
    yield say.two_matmuls, right - scale * model.hidden * model.feed_forward
    yield say.all_heads, right + 2 * scale * model.hidden * (model.hidden - kv)
    yield say.no_projection, right - scale * model.hidden**2
    if term == "optimizer state":
        yield say.no_fp32_copy, right * 8 / 12
        yield say.all_terms, right * 16 / 12
        yield say.only_fp32_copy, right * 4 / 12
    else:
        yield say.in_fp32, 2 * right
        yield say.elements, right / 2


def _sharding_slips(one: Layout, term: str, right: float) -> Iterator[tuple[str, float]]:
    """Yield slips about who shards the weights of a stage."""
    shards = one.data * one.context
    if shards > 1 and _is_sharded(one, term):
        yield say.not_sharded, right * shards
        if one.context > 1:
            yield say.not_over_context, right * one.context
        if one.data > 1 and one.context > 1:
            yield say.not_over_replicas, right * one.data
    elif shards > 1:
        yield say.sharded_by_zero_1, right / shards
    if one.context > 1:
        yield say.sharded_by_context, right / one.context
    if one.tensor > 1:
        yield say.no_tensor, right * one.tensor


def _stage_slips(
    task: LayoutTask, one: Layout, term: str, right: float
) -> Iterator[tuple[str, float]]:
    """Yield slips about what the first stage has: some blocks, the embedding, and the head if it is the last."""
    each = _each(task, one, term)
    table = each * task.model.vocabulary * task.model.hidden
    if one.pipeline == 1:
        yield say.no_tables, right - 2 * table
        yield say.tied_tables, right - table
        return
    others = each * (task.model.layers - one.blocks) * block_weights(task)
    yield say.all_blocks, right + others
    yield say.head_on_first, right + table
    yield say.no_embedding, right - table
    yield say.divided_tables, right - table + 2 * table / one.pipeline


def _is_sharded(one: Layout, term: str) -> bool:
    """Return whether ZeRO shards a term."""
    return one.zero == 3 or term == "optimizer state"


def _each(task: LayoutTask, one: Layout, term: str) -> float:
    """Return the B that a rank holds, on average, of each weight of its stage."""
    shards = one.data * one.context if _is_sharded(one, term) else 1
    return (12 if term == "optimizer state" else 2) / (one.tensor * shards)


def _kv(task: LayoutTask) -> int:
    """Return the numbers of a token's keys."""
    return task.model.hidden // task.model.heads * task.model.kv_heads


def block_weights(task: LayoutTask) -> float:
    """Return the weights of a block's products."""
    model = task.model
    attention = 2 * model.hidden * (model.hidden + _kv(task))
    return attention + 3 * model.hidden * model.feed_forward


def _activation_slips(task: LayoutTask, one: Layout, right: float) -> Iterator[tuple[str, float]]:
    model, flying = task.model, min(one.pipeline, one.microbatches)
    numbers = 2.0 * flying * model.sequence / (one.context * one.tensor)  # of one number a token
    yield from _block_slips(task, one, right, numbers * one.blocks)
    yield from _flight_slips(one, right, flying)
    if one.context > 1:
        yield say.whole_sequence, right * one.context
    if one.tensor > 1:
        yield say.no_sequence_parallelism, right * one.tensor
    last = numbers * (2 * model.vocabulary + 2 * model.hidden)
    if one.pipeline == 1:
        yield say.no_head, right - last
        yield say.logits_in_bf16, right - numbers * model.vocabulary
        yield say.no_last_norm, right - 2 * numbers * model.hidden
        if one.microbatches > 1:
            yield say.all_in_flight, (right - last) * one.microbatches + last
        yield say.one_byte, (right - last) / 2 + last
    else:
        yield say.head_counted, right + last
        yield say.head_counted, right + last / flying
        yield say.blocks_of_all, right * model.layers / one.blocks
    yield say.one_byte, right / 2


def _block_slips(
    task: LayoutTask, one: Layout, right: float, numbers: float
) -> Iterator[tuple[str, float]]:
    """Yield slips about what a block stores. numbers: B of one number of a token in each of the stage's blocks."""
    model, kv = task.model, _kv(task)
    if one.recompute == "full":
        stored = 5 * model.hidden + 2 * kv + 3 * model.feed_forward
        yield say.not_recomputed, right + numbers * stored
        return
    yield say.feed_forward, right - 2 * numbers * model.feed_forward
    yield say.feed_forward, right - numbers * model.feed_forward
    scores = numbers * model.heads * model.sequence
    yield say.scores_stored, right + scores
    yield say.no_keys, right - 2 * numbers * kv
    yield say.all_heads, right + 2 * numbers * (model.hidden - kv)
    yield say.no_input, right - numbers * model.hidden


def _flight_slips(one: Layout, right: float, flying: int) -> Iterator[tuple[str, float]]:
    """Yield slips about the microbatches in flight on the first stage."""
    single = right / flying
    if flying > 1:
        yield say.one_in_flight, single
        yield say.as_gpipe, single * one.microbatches
        yield say.one_too_few, single * (flying - 1)
        yield say.one_too_many, single * (flying + 1)
    elif one.microbatches > 1:
        yield say.all_in_flight, right * one.microbatches


def layout_findings(choose: Callable[..., Any], task: LayoutTask) -> list[Finding]:
    """Return whether a learner's layout fits and is fast."""
    try:
        one = chosen(choose, task)
    except LabError as error:
        return [broken(FITS, str(error)), later(QUICK, say.checked_later)]
    experiment = task.experiment_of(one)
    moment, room = peak(experiment), float(experiment.machine.device.memory)
    both = f"{words_of(one)}: {show(moment.total, 'B')} of {show(room, 'B')} at the peak ({moment.when})"
    if moment.total > room:
        terms = sorted(moment.terms, key=lambda term: moment.terms[term], reverse=True)[:2]
        largest = " and ".join(f"{term} {show(moment.terms[term], 'B')}" for term in terms)
        words = f"{both}: {largest}. What does your memory() return for this layout, including the reserve?"
        return [broken(FITS, words), later(QUICK, say.checked_later)]
    return [kept(FITS, f"{both}."), _quick_finding(predicted(task, one), task)]


def _quick_finding(found: Breakdown, task: LayoutTask) -> Finding:
    best, least = fastest(task)
    step = float(found.step_time)
    words = f"A step takes {show(step, 's')}, {step / least - 1:.1%} more than the fastest."
    if step <= (1 + MARGIN) * least:
        return kept(QUICK, words)
    goal = step_costs(predicted(task, best), EXPOSED)
    most, difference = most_above(step_costs(found, EXPOSED), goal)
    return broken(QUICK, f"{words} {difference} {HINTS[most]}")


def chosen(choose: Callable[..., Any], task: LayoutTask) -> Layout:
    """Return a learner's layout. Raises LabError where it is none of the legal ones."""
    with explained("choose"):
        found = choose(task.model, task.machine, list(task.layouts))
    known = {tuple(one): one for one in task.layouts}
    try:
        return known[tuple(found)]
    except (KeyError, TypeError):
        raise LabError(f"choose returns one of `layouts`, not {str(found)[:200]}.") from None
