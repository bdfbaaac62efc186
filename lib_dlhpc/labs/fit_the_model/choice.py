"""A learner's choice of a strategy: a function of a network, a machine and a batch, judged on runs shown and hidden.

task_of(seed, hidden)                   network, machine and batch of a learner; hidden: those that are not shown
best(own)                               the quickest step that a search finds, and its strategy
attempt(choice, own)                    the experiment that a learner's function chooses
choice_findings(choice, shown, hidden)  legal and of the same batch, within the memory, and quick
"""

import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.endless import limited
from lib_dlhpc.labs.findings import Finding, broken, kept, later
from lib_dlhpc.labs.mistakes import LabError, explained
from lib_dlhpc.labs.step_costs import most_above, step_costs
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.memory.rank_memory import peak
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

say = sentences(__file__)

GPUS = 8  # in a node
BUDGET = 12  # predictions
# B of a GPU beside state and blocks: driver, working set, logits; some runs need more
RESERVE = 2.4e9
MARGIN = 0.05  # above the quickest step that a search finds
PATIENCE = 30.0  # s of CPU for a run
LEGAL = "The choice is legal and keeps the batch"
FITS = "Target memory: it fits"
QUICK = f"Target time: within {MARGIN:.0%} of the fastest that fits"
CALL = "choice(model, machine, batch, measure, budget)"
REPLICAS, STAGES, TENSOR = (
    f"exposed messages of {what}" for what in ("replicas", "stages", "tensor groups")
)
EXPOSED = {"data": REPLICAS, "pipeline": STAGES, "tensor": TENSOR}
HINTS = {  # at what a choice has more of than the quickest
    "computing": say.computing,
    "recomputation": say.recomputation,
    "pipeline bubble": say.bubble,
    "updates": say.updates,
    REPLICAS: say.replicas,
    STAGES: say.stages,
    TENSOR: say.tensor,
}
FIELDS = (
    *("batch", "data", "tensor", "pipeline", "microbatches"),
    *("schedule", "chunks", "zero", "recompute", "sequence_parallel"),
)


class OverBudget(LabError):
    """More predictions than there are."""


class Task(NamedTuple):
    """A network, a machine and a batch. batch: sequences of a step, all GPUs together. memory: of a GPU."""

    layers: int
    hidden: int
    sequence: int
    nodes: int
    batch: int
    network: str
    memory: str

    @property
    def gpus(self) -> int:
        """Of all nodes."""
        return GPUS * self.nodes

    @property
    def nics(self) -> int:
        """Of a node."""
        return 8 if self.network.startswith("ib") else 1

    @property
    def heads(self) -> int:
        """Of 96 numbers each."""
        return self.hidden // 96


class Measured(NamedTuple):
    """What the library predicts of a strategy. bytes: of the fullest GPU at its peak; seconds: of a step."""

    bytes: float
    seconds: float


@cache
def task_of(seed: int, hidden: bool = False) -> Task:
    """Return a learner's own task, or one that is hidden."""
    rng = np.random.default_rng([seed, 6, 1] if hidden else [seed, 6])
    layers, wide = int(rng.choice([24, 28, 32, 40])), int(rng.choice([2304, 3072]))
    sequence, nodes = int(rng.choice([1024, 2048])), int(rng.choice([2, 4]))
    each = int(rng.choice([2, 4])) * 2048 // sequence
    network = str(rng.choice(["ethernet-25g", "ethernet-100g", "ib-hdr", "ib-hdr"]))
    memory = str(rng.choice(["8 GB", "12 GB", "16 GB", "24 GB", "40 GB"]))
    return Task(layers, wide, sequence, nodes, each * GPUS * nodes, network, memory)


def experiment_of(own: Task, **strategy: Any) -> Experiment:
    """Return a run of the task. strategy: its fields; batch is what keeps the global one. Raises SpecError."""
    split = 1
    for field in ("tensor", "pipeline"):
        try:
            split *= min(max(1, int(strategy.get(field, 1))), own.gpus)
        except (TypeError, ValueError, OverflowError):
            break  # no number, which is refused below
    size = {"layers": own.layers, "hidden": own.hidden, "heads": own.heads}
    machine = {"name": "selene", "nics": own.nics, "jitter": 0.0}
    device = {"name": "a100-sxm-40gb", "memory": own.memory}
    fixed = {"nodes": own.nodes, "precision": "bf16", "optimizer": "adam"}
    batch = {"batch": max(1, own.batch * split // own.gpus)}
    return Experiment(
        model={"family": "gpt", **size, "sequence": own.sequence, "vocabulary": 51200},
        dataset="webtext",
        machine=machine | {"inter_node": own.network, "device": device},
        strategy=fixed | batch | strategy,
    )


@cache
def best(own: Task) -> tuple[float, dict[str, Any]]:
    """Return (seconds, fields) of the quickest step that fits, over the splits that are worth a look."""
    found: list[tuple[float, dict[str, Any]]] = []
    for tensor, pipeline, zero in product((1, 2, 8), (1, 2, 4), (0, 1, 2, 3)):
        each, rest = divmod(own.batch * tensor * pipeline, own.gpus)
        replicas = own.gpus // (tensor * pipeline)
        if rest or not replicas or (zero and replicas == 1):
            continue
        found += _quick(own, each, {"tensor": tensor, "pipeline": pipeline, "zero": zero})
    return min(found, key=lambda one: one[0])


def quickest(own: Task) -> Breakdown:
    """Return the prediction of the quickest step that fits."""
    fields = best(own)[1]
    return predict(experiment_of(own, **fields, sequence_parallel=fields["tensor"] > 1))


def _quick(own: Task, batch: int, split: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield what fits: for each size of a microbatch the least recomputation."""
    for size in (4, 1):
        for recompute in ("none", "selective", "full") if batch % size == 0 else ():
            fields = split | {"microbatches": batch // size, "recompute": recompute}
            experiment = experiment_of(own, **fields, sequence_parallel=split["tensor"] > 1)
            if peak(experiment).total <= experiment.machine.device.memory:
                yield float(predict(experiment).step_time), fields
                break


@cache
def known(own: Task) -> tuple[dict[str, float], dict[str, float]]:
    """Return what a learner's function knows of the network and of the machine: numbers by name, in SI units."""
    experiment = experiment_of(own)
    found, machine = predict(experiment), experiment.machine
    flop = float(experiment.model.train_flop)
    alone = float(found.forward + found.backward) * own.gpus  # s of the batch on one GPU
    near, far = machine.intra_node, machine.inter_node
    model = {"layers": own.layers, "hidden": own.hidden, "heads": own.heads, "flop": flop}
    model |= {"sequence": own.sequence, "parameters": int(experiment.model.parameters)}
    return model, {
        "gpus": own.gpus,
        "per_node": GPUS,
        "memory": float(machine.device.memory),
        "reserve": RESERVE,
        "rate": own.batch * flop / alone,
        "nvlink": float(near.bandwidth) * float(near.efficiency),
        "nic": float(far.bandwidth) * float(far.efficiency) * own.nics / GPUS,
    }


def named(own: Task) -> str:
    """Return a task in words."""
    nodes = f"{own.nodes} nodes with {own.memory} per GPU, {own.nics} x {own.network}"
    return f"{own.layers} blocks of {own.hidden} on {nodes}"


def read_choice(text: Any, own: Task) -> Experiment:
    """Return the experiment that a [strategy] stands for. Raises SpecError, LabError."""
    try:
        tables = tomllib.loads(text)
    except Exception as error:
        raise LabError(
            f"{CALL} returns a [strategy] as TOML. {type(error).__name__}: {error}"
        ) from None
    given = tables.get("strategy", {})
    if not isinstance(given, dict):
        raise LabError(
            f"strategy = {given!r}: expected a table that starts with the line [strategy]."
        )
    outside = sorted({*tables} & {*FIELDS})
    if outside:
        raise LabError(
            f"{', '.join(outside)}: these belong below a line [strategy], which is missing."
        )
    extra = sorted({*tables} - {"strategy"}) + sorted({*given} - {*FIELDS})
    if extra:
        raise LabError(f"{', '.join(extra)}: fixed by the task; you may set: {', '.join(FIELDS)}.")
    experiment = experiment_of(own, **given)
    predict(experiment)  # which says why a network cannot be split so
    if int(experiment.global_batch) != own.batch:
        replicas = int(experiment.global_batch) // int(experiment.strategy.batch)
        raise LabError(
            f"A step must have {own.batch} sequences, but this one has {int(experiment.global_batch)}: {replicas}"
            f" replicas of {int(experiment.strategy.batch)}. `batch` counts the sequences of one replica."
        )
    return experiment


def attempt(choice: Callable[..., Any], own: Task) -> Experiment:
    """Return the experiment that a learner's function chooses. Raises SpecError, LabError, OverBudget, Endless."""
    asked: list[Any] = []

    def measure(text: Any) -> Measured:
        if len(asked) == BUDGET:
            raise OverBudget(f"`choice` asked for prediction {BUDGET + 1} of {BUDGET}.")
        asked.append(text)
        experiment = read_choice(text, own)
        return Measured(float(peak(experiment).total), float(predict(experiment).step_time))

    def endless() -> str:
        words = f"It is still computing after {PATIENCE:g} s, after {len(asked)} predictions."
        return f"{words} Which loop never ends?"

    model, machine = (dict(each) for each in known(own))
    with explained(CALL, SpecError):
        text = limited(
            lambda: choice(model, machine, own.batch, measure, BUDGET), PATIENCE, endless
        )
    return read_choice(text, own)


def choice_findings(
    choice: Callable[..., Any], shown: Task, hidden: Sequence[Task] = ()
) -> list[Finding]:
    """Return what holds for a choice on the task that is shown, and if all of it does, on hidden ones as well."""
    found = _task_findings(choice, shown)
    for own in hidden:
        if all(each.right for each in found):
            there = _task_findings(choice, own)
            if not all(each.right for each in there):
                where = f"A run that is not shown, {named(own)}. "
                found = [
                    each._replace(words=where * (each.right is False) + each.words)
                    for each in there
                ]
    return found


def _task_findings(choice: Callable[..., Any], own: Task) -> list[Finding]:
    try:
        experiment = attempt(choice, own)
    except (SpecError, LabError) as error:
        return [broken(LEGAL, str(error)), later(FITS), later(QUICK)]
    device, strategy, moment = experiment.machine.device, experiment.strategy, peak(experiment)
    many = f"{strategy.microbatches} microbatch{'es' * (strategy.microbatches > 1)}"
    legal = kept(LEGAL, f"Tensor {strategy.tensor}, pipeline {strategy.pipeline}, {many}.")
    terms = sorted(moment.terms, key=lambda term: moment.terms[term], reverse=True)[:2]
    largest = " and ".join(f"{term} {show(moment.terms[term], 'B')}" for term in terms)
    both = f"{show(moment.total, 'B')} of {show(device.memory, 'B')}"
    need = f"{both} at the peak ({moment.when}): {largest}"
    if moment.total > device.memory:
        words = f"{need}. What makes {terms[0]} smaller, and what does it cost?"
        return [legal, broken(FITS, words), later(QUICK, say.checked_later)]
    return [legal, kept(FITS, f"{need}."), _quick_finding(predict(experiment), own)]


def _quick_finding(found: Breakdown, own: Task) -> Finding:
    step, goal, costs = float(found.step_time), best(own)[0], step_costs(found, EXPOSED)
    words = f"A step takes {show(step, 's')}; the fastest found is {show(goal, 's')}."
    if step > (1 + MARGIN) * goal:
        most, difference = most_above(costs, step_costs(quickest(own), EXPOSED))
        return broken(QUICK, f"{words} {difference} {HINTS[most]}")
    most = max((each for each in costs if each != "computing"), key=lambda each: costs[each])
    largest = f"The largest part besides computation is {most}, {show(costs[most], 's')}."
    return kept(QUICK, f"{words} {largest}")
