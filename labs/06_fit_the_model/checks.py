"""Checks of lab 6: does the ledger hold, does the choice fit and is it quick, and does a small run stay under its cap?

In the notebook:   task(NAME), check_formulas(state, activations, seconds, NAME), check_choice(choice, NAME),
                   check_small(small, small_peak, NAME), on_ranks(NAME, all six)
In a terminal:     python checks.py step.py "your name"                  all of it, the small run included
                   mpiexec -n 4 python checks.py step.py "your name"     ZeRO on real ranks; srun works as well
"""

import gc
import sys
import tomllib
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.attempts import report
from lib_dlhpc.labs.findings import broken, kept, later, passed, seed_of
from lib_dlhpc.labs.fit_the_model.formulas import (
    PLAIN,
    activations_finding,
    seconds_finding,
    state_finding,
)
from lib_dlhpc.labs.fit_the_model.small_run import small_findings, small_of
from lib_dlhpc.labs.formula_cases import value_of
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.program import arguments, end_together, handed_in
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.ledger import peak
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.units import format_quantity as show_quantity

HERE = Path(__file__).parent
GPUS = 8  # in a node
MARGIN = 0.05  # above the quickest step that a search finds
LEGAL = "The choice is legal and keeps the batch"
FITS = "Target memory: it fits"
REPLICAS, STAGES, TENSOR = (
    f"exposed messages of {what}" for what in ("replicas", "stages", "tensor groups")
)
HINTS = {  # at what a choice has more of than the quickest
    "computing": "Which of your products are too small to fill a GPU: those of few samples, or of a narrow shard?",
    "recomputation": "What do you pay for memory that you do not need, or that something else "
    "provides for less?",
    "pipeline bubble": "What makes it shorter: fewer stages, or more microbatches?",
    "updates": "Which rank updates which weights, and does ZeRO change that?",
    REPLICAS: "What do replicas send in a step, only gradients or also weights, and how often? "
    "Would a split leave less to send?",
    STAGES: "Besides activations, the first and the last stage exchange the gradient of the "
    "embedding that both store: all of it or, where ZeRO shards gradients, one shard each. "
    "Each GPU of a tensor group sends all activations, or with `sequence_parallel` a slice. "
    "What would fewer stages send, or smaller microbatches, whose first message arrives "
    "sooner?",
    TENSOR: "Each block waits for its messages, even inside a node. What would a smaller group "
    "send?",
}
QUICK = f"Target time: within {MARGIN:.0%} of the fastest that fits"
NAMES = ("state", "activations", "seconds", "choice", "small", "small_peak")
FIELDS = (
    "batch",
    "data",
    "tensor",
    "pipeline",
    "microbatches",
    "schedule",
    "chunks",
    "zero",
    "recompute",
    "sequence_parallel",
)


class Task(NamedTuple):
    """A learner's network, machine and batch. batch: sequences of a step, all GPUs together."""

    layers: int
    hidden: int
    sequence: int
    nodes: int
    batch: int
    network: str
    memory: str  # of a GPU

    @property
    def gpus(self):
        return GPUS * self.nodes

    @property
    def nics(self):
        return 8 if self.network.startswith("ib") else 1

    @property
    def heads(self):
        return self.hidden // 96


@cache
def task_of(name):
    """Return the learner's own task."""
    rng = np.random.default_rng([seed_of(name), 6])
    layers, hidden = int(rng.choice([24, 28, 32, 40])), int(rng.choice([2304, 3072]))
    sequence, nodes = int(rng.choice([1024, 2048])), int(rng.choice([2, 4]))
    each = int(rng.choice([2, 4])) * 2048 // sequence
    network = str(rng.choice(["ethernet-25g", "ethernet-100g", "ib-hdr", "ib-hdr"]))
    memory = str(rng.choice(["8 GB", "12 GB", "16 GB", "24 GB", "40 GB"]))
    return Task(layers, hidden, sequence, nodes, each * GPUS * nodes, network, memory)


def experiment_of(own, **strategy):
    """Return the learner's run. strategy: fields of a strategy; batch is what keeps the global one."""
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
    return read_experiment(
        {
            "model": {"family": "gpt", **size, "sequence": own.sequence, "vocabulary": 51200},
            "dataset": {"name": "webtext"},
            "machine": machine | {"inter_node": own.network, "device": device},
            "strategy": fixed | batch | strategy,
        }
    )


@cache
def best(name):
    """Return (seconds, fields) of the quickest step that fits, over the splits that are worth a look."""
    own, found = task_of(name), []
    for tensor, pipeline, zero in product((1, 2, 8), (1, 2, 4), (0, 1, 2, 3)):
        each, rest = divmod(own.batch * tensor * pipeline, own.gpus)
        replicas = own.gpus // (tensor * pipeline)
        if rest or not replicas or (zero and replicas == 1):
            continue
        found += _quick(own, each, {"tensor": tensor, "pipeline": pipeline, "zero": zero})
    return min(found, key=lambda one: one[0])


def quickest(name):
    """Return the prediction of the quickest step that fits."""
    fields = best(name)[1]
    return predict(experiment_of(task_of(name), **fields, sequence_parallel=fields["tensor"] > 1))


def _quick(own, batch, split):
    """Yield what fits: for each size of a microbatch the least recomputation."""
    for size in (4, 1):
        for recompute in ("none", "selective", "full") if batch % size == 0 else ():
            fields = split | {"microbatches": batch // size, "recompute": recompute}
            experiment = experiment_of(own, **fields, sequence_parallel=split["tensor"] > 1)
            if peak(experiment).total <= experiment.machine.device.memory:
                yield float(predict(experiment).step_time), fields
                break


def task(name):
    """Return the learner's task in words."""
    from lib_dlhpc.explore.labs.lab import say

    own = task_of(name)
    plain = experiment_of(own)
    return say(
        f"Network: a GPT of {own.layers} blocks, hidden size {own.hidden}, {own.heads} heads, sequences of"
        f" {own.sequence} tokens: {show_quantity(plain.model.parameters, '')} weights; bf16, Adam.\n"
        f"Machine: {own.nodes} nodes of {GPUS} GPUs, each of"
        f" {show_quantity(plain.machine.device.memory, 'B')};"
        f" NVLink inside a node, {own.nics} x {own.network} out of it.\n"
        f"A step: {own.batch} sequences, all GPUs together.\n"
        f"Without a split, with all weights on each GPU and {own.batch // own.gpus} sequences of "
        "its own: a GPU needs"
        f" {show_quantity(peak(plain).total, 'B')}.\n"
        f"Target: it fits, and a step takes at most {show_quantity((1 + MARGIN) * best(name)[0], 's')}."
    )


def largest_term(name):
    """Return what of the learner's run, as it is, takes the most memory."""
    terms = peak(experiment_of(task_of(name))).terms
    return max(terms, key=terms.get)


def formulas_findings(state, activations, seconds, name):
    """Return what holds for the learner's formulas."""
    own = task_of(name)

    def one(layers, **strategy):
        return experiment_of(own._replace(layers=layers), **strategy)

    shape = own.sequence, own.hidden, own.heads
    return [
        state_finding(state, int(experiment_of(own).model.parameters)),
        activations_finding(activations, one, shape),
        seconds_finding(seconds, seed_of(name)),
    ]


def check_formulas(state, activations, seconds, name):
    """Return the findings on the formulas for the page."""
    from lib_dlhpc.explore.labs.lab import show

    return show(formulas_findings(state, activations, seconds, name), "Your ledger")


def chosen(choice, name):
    """Return the experiment that a learner's text stands for. Raises SpecError, LabError."""
    own = task_of(name)
    try:
        text = choice()
        tables = tomllib.loads(text)
    except Exception as error:
        raise LabError(
            f"choice() returns a [strategy] as TOML. {type(error).__name__}: {error}"
        ) from None
    given = tables.get("strategy", {})
    if not isinstance(given, dict):
        raise LabError(
            f"strategy = {given!r}: expected a table that starts with the line [strategy]."
        )
    outside = sorted({*tables} & {*FIELDS})
    if outside:
        raise LabError(f"{', '.join(outside)}: expected below a line [strategy], which is missing.")
    extra = sorted({*tables} - {"strategy"}) + sorted({*given} - {*FIELDS})
    if extra:
        raise LabError(f"{', '.join(extra)}: not yours to choose; legal: {', '.join(FIELDS)}.")
    experiment = experiment_of(own, **given)
    predict(experiment)  # which says why a network cannot be split so
    if int(experiment.global_batch) != own.batch:
        replicas = int(experiment.global_batch) // int(experiment.strategy.batch)
        raise LabError(
            f"A step is {own.batch} sequences, and this one has {int(experiment.global_batch)}: {replicas} replicas"
            f" of {int(experiment.strategy.batch)}. `batch` counts those of one replica."
        )
    return experiment


def choice_findings(choice, name):
    """Return whether the choice fits and is quick."""
    try:
        experiment = chosen(choice, name)
    except (SpecError, LabError) as error:
        return [broken(LEGAL, str(error)), later(FITS), later(QUICK)]
    found, goal, device = predict(experiment), best(name)[0], experiment.machine.device
    strategy, moment = experiment.strategy, peak(experiment)
    many = f"{strategy.microbatches} microbatch{'es' * (strategy.microbatches > 1)}"
    legal = kept(LEGAL, f"Tensor {strategy.tensor}, pipeline {strategy.pipeline}, {many}.")
    terms = sorted(moment.terms, key=moment.terms.get, reverse=True)[:2]
    largest = " and ".join(f"{term} {show_quantity(moment.terms[term], 'B')}" for term in terms)
    both = f"{show_quantity(moment.total, 'B')} of {show_quantity(device.memory, 'B')}"
    need = f"{both}, the most {moment.when}: {largest}"
    step = float(found.step_time)
    if moment.total > device.memory:
        words = f"{need}. What makes {terms[0]} smaller, and what does it cost?"
        return [legal, broken(FITS, words), later(QUICK, "As soon as it fits.")]
    took, least = show_quantity(step, "s"), show_quantity(goal, "s")
    words = f"A step takes {took}; the fastest found is {least}."
    fits, costs = kept(FITS, f"{need}."), _costs(found)
    if step > (1 + MARGIN) * goal:
        more = {each: costs[each] - least for each, least in _costs(quickest(name)).items()}
        most = max(more, key=more.get)
        words += (
            f" The largest difference: {most}, {show_quantity(more[most], 's')} more. {HINTS[most]}"
        )
        return [legal, fits, broken(QUICK, words)]
    most = max((each for each in costs if each != "computing"), key=costs.get)
    largest = f"The largest part besides computation is {most}, {show_quantity(costs[most], 's')}."
    return [legal, fits, kept(QUICK, f"{words} {largest}")]


def _costs(found):
    """Return the seconds of a step by what HINTS are about."""
    kinds = {REPLICAS: "data", STAGES: "pipeline", TENSOR: "tensor"}
    again = float(found.recomputation)
    return {
        "computing": float(found.forward + found.backward) - again,
        "recomputation": again,
        "pipeline bubble": float(found.pipeline_bubble),
        "updates": float(found.update),
    } | {each: float(found.exposed.get(kind, 0.0)) for each, kind in kinds.items()}


def check_choice(choice, name):
    """Return the findings on the choice for the page."""
    from lib_dlhpc.explore.labs.lab import show

    return show(choice_findings(choice, name), "Your strategy")


def small_task(name):
    """Return the small task in words."""
    from lib_dlhpc.explore.labs.lab import say

    own = small_of(seed_of(name))
    return say(
        f"{own.depth} layers of {own.width}, one of 10, tanh between them; fp32, momentum; a batch of {own.batch}"
        f" samples of {own.width} numbers.\nCap: {own.cap / 1e6:.0f} MB above what Python itself "
        "takes. The system enforces it."
    )


def check_small(small, small_peak, name):
    """Return the findings on the small run for the page."""
    from lib_dlhpc.explore.labs.lab import show

    return show(
        small_findings(small, small_peak, small_of(seed_of(name))),
        "A run under a cap on this machine",
    )


def findings(given, name):
    """Return what holds for all that is handed in: functions by their names in NAMES."""
    state, activations, seconds, choice, small, small_peak = (given[each] for each in NAMES)
    paper = formulas_findings(state, activations, seconds, name) + choice_findings(choice, name)
    return [*paper, *small_findings(small, small_peak, small_of(seed_of(name)))]


def on_ranks(name, *functions, ranks=4):
    """Save the cells as step.py and compare `state` with ZeRO on MPI ranks, once the formulas hold."""
    from lib_dlhpc.explore.labs.lab import run_ranks, save, say

    given = dict(zip(NAMES, functions, strict=True))
    if not passed(formulas_findings(*functions[:3], name)):
        return say("Not yet: your formulas have to hold first.")
    try:
        file = save(given["state"], HERE / "step.py", *functions[1:])
        return say(run_ranks(HERE / "checks.py", str(file), name, ranks=ranks))
    except (LabError, SpecError) as error:
        return say(str(error))


def main():
    """Check step.py; on several ranks, measure the memory that ZeRO leaves on each."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    file, name = arguments("step.py", '"your name"')
    given = handed_in(file, NAMES if comm.size == 1 else NAMES[:1])
    if comm.size == 1:
        result = findings(given, name)
        print(report(result))
        sys.exit(not passed(result))
    found = {
        level: _peak_of(level, comm) for level in (3, 1, 0)
    }  # memory grows, and is not returned
    if comm.rank == 0:
        print(
            f"{comm.size} real ranks, fp32 and momentum, {real_experiment(1, 0).model.parameters:,} weights"
        )
        print(report([_weighed(given["state"], comm.size, found, level) for level in (0, 1, 3)]))


def real_experiment(ranks, level):
    """Return what is trained on real ranks: nearly all of it is weights."""
    strategy = {"devices_per_node": ranks, "batch": 16, "zero": level, "bucket": "1 MB"}
    return read_experiment(
        {
            "model": {"family": "mlp", "widths": [64, *[640] * 14, 10], "activation": "tanh"},
            "dataset": {"name": "digits", "samples": 64 * ranks},
            "machine": {"name": "laptop", "devices_per_node": ranks},
            "strategy": strategy,
            "run": {"epochs": 1},
        }
    )


def _peak_of(level, comm):
    from lib_dlhpc.training.trainer import train

    gc.collect()  # an earlier run that is still in memory would raise the baseline
    run = train(real_experiment(comm.size, level), comm)
    return max((own.peak for own in run.memory), default=0)


def _weighed(state, ranks, found, level):
    """Whether what a rank held at its peak is what the learner's formula says, and a few layers."""
    parameters = int(real_experiment(1, 0).model.parameters)
    size = value_of(state, parameters, PLAIN, ranks, level)
    words = (
        f"Your state is {size / 1e6:.0f} MB a rank; measured at the peak, with activations and messages,"
        f" {found[level] / 1e6:.0f} MB."
    )
    law, room = f"ZeRO {level}", 0.35 * sum(PLAIN) * parameters
    fits = size <= 1.05 * found[level] <= size + room
    return (kept if fits else broken)(law, words)


if __name__ == "__main__":
    end_together(main)
