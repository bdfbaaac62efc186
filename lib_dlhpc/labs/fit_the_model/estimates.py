"""A learner's estimate of a whole strategy beside the library's ledger and prediction, term by term.

estimate(model, machine, batch, fields)    {"state": B, "activations": B, "computing": s} of a GPU and a step
The formulas are exact for a block and for a number of weights; here they are put together for a network on a machine.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from lib_dlhpc.costs.model_state import model_state_bytes
from lib_dlhpc.labs.findings import Finding
from lib_dlhpc.labs.fit_the_model.choice import EXPOSED, Task, experiment_of, known
from lib_dlhpc.labs.fit_the_model.formulas import block_bytes
from lib_dlhpc.labs.formula_cases import Case, compared, one_term
from lib_dlhpc.labs.step_costs import step_costs
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory.rank_memory import peak
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.experiment import Experiment

say = sentences(__file__)

NEAR = 0.2  # of a term: stages are uneven, the first also has the embedding
TERMS = {  # a learner's terms, and the unit of each
    "state": "B",
    "activations": "B",
    "computing": "s",
}
STATE, ACTIVATIONS, COMPUTING = (f"Estimate of a strategy: {each}, to {NEAR:.0%}" for each in TERMS)
LAWS = dict(zip(TERMS, (STATE, ACTIVATIONS, COMPUTING), strict=True))
HELD = ("weights", "gradients", "master weights", "optimizer state")
HINTS = {
    "state": say.count_state,
    "activations": say.count_activations,
    "computing": say.count_time,
}


class Way(NamedTuple):
    """Fields of a strategy. size: samples of a microbatch."""

    tensor: int
    pipeline: int
    zero: int
    size: int
    recompute: str


CASES = {  # the simple ones first
    "state": (
        Way(1, 1, 0, 1, "none"),
        Way(1, 1, 3, 1, "none"),
        Way(8, 1, 1, 1, "none"),
        Way(1, 2, 1, 1, "none"),
    ),
    "activations": (Way(1, 1, 0, 1, "none"), Way(8, 1, 1, 1, "none"), Way(1, 2, 1, 1, "none")),
    "computing": (Way(1, 1, 0, 1, "none"), Way(1, 1, 3, 1, "full"), Way(1, 4, 2, 4, "none")),
}


def estimate_findings(estimate: Callable[..., Any], own: Task) -> list[Finding]:
    """Return for each term whether a learner's estimate is the library's, in a few strategies."""
    return [_term_finding(estimate, own, term) for term in TERMS]


def _term_finding(estimate: Callable[..., Any], own: Task, term: str) -> Finding:
    value = one_term("estimate", estimate, term, TERMS, "bytes or seconds")
    cases = []
    for way in CASES[term]:
        fields = fields_of(way, own)
        right, near = predicted(way, own)[term], _closed_form(way, own, term)
        slips = [(words, near * factor) for words, factor in _FACTORS[term](way, own)]
        about = ", ".join(f"{name} {each}" for name, each in fields.items())
        model, machine = known(own)
        cases.append(Case(about, (model, machine, own.batch, fields), right, slips, HINTS[term]))
    done = f"Compared in {len(cases)} strategies, with a tolerance of {NEAR:.0%}."
    return compared(LAWS[term], value, cases, done, NEAR, TERMS[term])


def fields_of(way: Way, own: Task) -> dict[str, Any]:
    """Return the fields of a strategy as a learner's function is given them."""
    many = own.batch * way.tensor * way.pipeline // own.gpus // way.size
    named = {"tensor": way.tensor, "pipeline": way.pipeline, "microbatches": many}
    return named | {"zero": way.zero, "recompute": way.recompute}


@cache
def predicted(way: Way, own: Task) -> dict[str, float]:
    """Return the library's terms of a strategy."""
    experiment = experiment_of(own, **fields_of(way, own))
    terms, costs = peak(experiment).terms, step_costs(predict(experiment), EXPOSED)
    return {
        "state": float(sum(terms.get(name, 0.0) for name in HELD)),
        "activations": float(terms["activations"]),
        "computing": costs["computing"] + costs["recomputation"] + costs["pipeline bubble"],
    }


def _closed_form(way: Way, own: Task, term: str) -> float:
    """Return a term by the formulas, to which a mistake in them is a factor."""
    model, machine = known(own)
    p, many = way.pipeline, fields_of(way, own)["microbatches"]
    if term == "state":
        shard = model["parameters"] / (way.tensor * p)
        data = own.gpus // (way.tensor * p)
        return float(model_state_bytes(shard, "bf16", "adam", data, way.zero))
    if term == "computing":
        again = 4 / 3 if way.recompute == "full" else 1
        alone = own.batch * model["flop"] / machine["rate"]
        return float(alone / own.gpus * again * (1 + (p - 1) / many))

    return _block(way, own, way.tensor) * own.layers / p * min(p, many)


def _block(way: Way, own: Task, tensor: int) -> float:
    """Return the bytes that a block of the learner's network stores on a GPU of a tensor group."""

    def one(layers: int, **strategy: Any) -> Experiment:
        return experiment_of(own._replace(layers=layers), **strategy)

    return block_bytes(one, way.size, tensor, way.recompute)


Factors = Iterator[tuple[str, float]]  # what a value may have left out, and the factor it is off by


def _state(way: Way, own: Task) -> Factors:
    data = own.gpus // (way.tensor * way.pipeline)
    if way.tensor > 1:
        yield say.tensor_shards, way.tensor
    if way.pipeline > 1:
        yield say.own_blocks, way.pipeline
    w, g, rest = 2, 2, 12
    right = w / (data if way.zero > 2 else 1) + g / (data if way.zero > 1 else 1)
    right += rest / (data if way.zero else 1)
    yield say.zero_shards, (w + g + rest) / right
    if way.zero:
        other = w / (own.gpus if way.zero > 2 else 1) + g / (own.gpus if way.zero > 1 else 1)
        yield say.replicas, (other + rest / own.gpus) / right


def _activations(way: Way, own: Task) -> Factors:
    many = fields_of(way, own)["microbatches"]
    flying = min(way.pipeline, many)
    if way.pipeline > 1:
        yield say.microbatch, many
    else:  # too large a microbatch and too many of them are the same factor
        yield say.one_in_flight, many
    replicas = own.gpus // (way.tensor * way.pipeline)
    yield say.whole_batch, replicas
    if way.tensor > 1:
        whole = _block(way, own, 1) / _block(way, own, way.tensor)
        yield say.tensor_part, whole
    yield say.all_in_flight, many * own.gpus
    yield say.all_blocks, way.pipeline / own.layers
    if way.pipeline > 1:
        own_blocks = "A stage stores the activations of its own blocks"
        most = "there are no more microbatches in flight than stages"
        if many == flying * way.pipeline:
            yield f"{own_blocks}, and {most}.", way.pipeline
        yield f"{own_blocks}.", way.pipeline
        yield f"With 1F1B {most}.", many / flying
        yield say.in_flight, 1 / flying


def _computing(way: Way, own: Task) -> Factors:
    many = fields_of(way, own)["microbatches"]
    work = many / (many + way.pipeline - 1)
    yield say.shared_work, own.gpus
    yield say.one_sequence, 1 / own.batch
    if way.recompute == "full":
        yield say.recomputed, 3 / 4
    if way.pipeline > 1:
        yield say.bubble, work
        yield say.stages_counted, 1 / way.pipeline
        yield say.all_stages, way.pipeline


_FACTORS: dict[str, Callable[[Way, Task], Factors]] = {
    "state": _state,
    "activations": _activations,
    "computing": _computing,
}
