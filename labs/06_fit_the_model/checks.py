"""Checks of lab 6: does the ledger hold, does the choice fit and is it quick, and does a small run stay under its cap?

In the notebook:   task(NAME), check_formulas(state, activations, seconds, NAME), check_estimate(estimate, NAME),
                   check_choice(choice, NAME), check_small(small, small_peak, NAME), on_ranks(NAME, all seven)
In a terminal:     python checks.py step.py "your name"                  all of it, the small run included
                   mpiexec -n 4 python checks.py step.py "your name"     ZeRO on real ranks; srun works as well
"""

import gc
from pathlib import Path

from lib_dlhpc.explore.labs.lab import save_and_run, say, show
from lib_dlhpc.labs.attempts import report
from lib_dlhpc.labs.findings import broken, kept, passed, seed_of
from lib_dlhpc.labs.fit_the_model import choice as choices
from lib_dlhpc.labs.fit_the_model.choice import GPUS, MARGIN, experiment_of
from lib_dlhpc.labs.fit_the_model.estimates import estimate_findings
from lib_dlhpc.labs.fit_the_model.formulas import (
    PLAIN,
    activations_finding,
    seconds_finding,
    state_finding,
)
from lib_dlhpc.labs.fit_the_model.small_run import small_findings, small_of
from lib_dlhpc.labs.formula_cases import value_of
from lib_dlhpc.labs.program import arguments, end_together, end_with, handed_in
from lib_dlhpc.prediction.memory.rank_memory import peak
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.units import format_quantity as show_quantity

HERE = Path(__file__).parent
NAMES = ("state", "activations", "seconds", "estimate", "choice", "small", "small_peak")


def task_of(name):
    """Return the learner's own task."""
    return choices.task_of(seed_of(name))


def best(name):
    """Return (seconds, fields) of the quickest step that a search finds for the learner's task."""
    return choices.best(task_of(name))


def task(name):
    """Return the learner's task in words."""
    own = task_of(name)
    plain = experiment_of(own)
    return say(
        f"Network: a GPT of {own.layers} blocks, hidden size {own.hidden}, {own.heads} heads, sequences of"
        f" {own.sequence} tokens: {show_quantity(plain.model.parameters, '')} weights; bf16, Adam.\n"
        f"Machine: {own.nodes} nodes of {GPUS} GPUs, each of"
        f" {show_quantity(plain.machine.device.memory, 'B')};"
        f" NVLink inside a node, {own.nics} x {own.network} out of it.\n"
        f"A step: {own.batch} sequences over all GPUs.\n"
        f"Without a split, with all weights on each GPU and {own.batch // own.gpus} sequences of "
        "its own: a GPU needs"
        f" {show_quantity(peak(plain).total, 'B')}.\n"
        f"Target: it fits, and a step takes at most {show_quantity((1 + MARGIN) * best(name)[0], 's')}."
        f" Budget: {choices.BUDGET} predictions."
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
    return show(formulas_findings(state, activations, seconds, name), "Your ledger")


def check_estimate(estimate, name):
    """Return the findings on the estimate for the page."""
    return show(estimate_findings(estimate, task_of(name)), "Your estimate")


def chosen(choice, name):
    """Return the experiment that a learner's function chooses. Raises SpecError, LabError."""
    return choices.attempt(choice, task_of(name))


def choice_findings(choice, name, hidden=False):
    """Return whether the choice fits and is quick; hidden: on a run that is not shown as well."""
    further = [choices.task_of(seed_of(name), hidden=True)] if hidden else []
    return choices.choice_findings(choice, task_of(name), further)


def check_choice(choice, name):
    """Return the findings on the choice for the page."""
    return show(choice_findings(choice, name), "Your strategy")


def small_task(name):
    """Return the small task in words."""
    own = small_of(seed_of(name))
    return say(
        f"{own.depth} layers of {own.width}, one of 10, tanh between them; fp32, momentum; a batch of {own.batch}"
        f" samples of {own.width} numbers.\nCap: {own.cap / 1e6:.0f} MB above what Python itself "
        "takes. The system enforces it."
    )


def check_small(small, small_peak, name):
    """Return the findings on the small run for the page."""
    return show(
        small_findings(small, small_peak, small_of(seed_of(name))),
        "A run under a cap on this machine",
    )


def findings(given, name):
    """Return what holds for all that is handed in: functions by their names in NAMES."""
    state, activations, seconds, estimate, choice, small, small_peak = (
        given[each] for each in NAMES
    )
    paper = formulas_findings(state, activations, seconds, name)
    paper += estimate_findings(estimate, task_of(name))
    paper += choice_findings(choice, name, hidden=True)
    return [*paper, *small_findings(small, small_peak, small_of(seed_of(name)))]


def on_ranks(name, *functions, ranks=4):
    """Save the cells as step.py and compare `state` with ZeRO on MPI ranks, once the formulas hold."""
    if not passed(formulas_findings(*functions[:3], name)):
        return say("Not yet: your formulas have to hold first.")
    return save_and_run(HERE, name, functions, ranks)


def main():
    """Check step.py; on several ranks, measure the memory that ZeRO leaves on each."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    file, name = arguments("step.py", '"your name"')
    given = handed_in(file, NAMES if comm.size == 1 else NAMES[:1])
    if comm.size == 1:
        end_with(findings(given, name))
    # Memory grows, and is not returned.
    found = {level: _peak_of(level, comm) for level in (3, 1, 0)}
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
        f"Your state is {size / 1e6:.0f} MB per rank; measured at the peak, with activations and messages,"
        f" {found[level] / 1e6:.0f} MB."
    )
    law, room = f"ZeRO {level}", 0.35 * sum(PLAIN) * parameters
    fits = size <= 1.05 * found[level] <= size + room
    return (kept if fits else broken)(law, words)


if __name__ == "__main__":
    end_together(main)
