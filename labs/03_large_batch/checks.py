"""Lab 3: a budget of runs at 32 times the base batch, judged on a validation split; the test is revealed once.

In the notebook:   tuning = tuning_of(NAME); tuning.attempt(...); tuning.check(); tuning.reveal(sure=True)
In a terminal:     python checks.py choice.toml "your name"      whether the choice reaches the target
                   mpiexec -n 4 python checks.py choice.toml     the test samples, on four ranks; srun works as well
"""

from dataclasses import dataclass, replace
from functools import cache
from html import escape
from itertools import count
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.labs.lab import show
from lib_dlhpc.labs.findings import broken, kept, later, seed_of
from lib_dlhpc.labs.program import Unusable, arguments, end_together, end_with
from lib_dlhpc.spec.experiment import dump, load, read_experiment
from lib_dlhpc.studies.large_batch import CHANCE, accuracy_of, fresh, steps
from lib_dlhpc.training.data import load as load_data
from lib_dlhpc.training.rank import Diverged
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.threads import one_thread
from lib_dlhpc.training.trainer import train

HERE = Path(__file__).parent
BASE, TIMES, EPOCHS = 16, 32, 40
BUDGET, SEEDS, MARGIN = 10, 3, 0.015
COLLAPSED, TIMID = 0.5, 0.1  # accuracy; movement of the weights over their length
RULES = ("sgd", "momentum", "lars", "lamb", "adam")
DECAYS = ("constant", "step", "cosine", "quadratic")
REACHED = "Target: at most 1.5 points below the small batch's accuracy"
WITHIN = "Within the budget"
ONCE = "The test samples were used once, after the choice"
# The guess's answers are here so that its cell does not show them.
SCALED = {
    "result": "next to nothing",
    "explanation": "See for yourself: it is worth an attempt. At 8 times the batch, linear scaling mostly works.",
}


class Choice(NamedTuple):
    """What may be chosen."""

    rule: str
    rate: float
    warm_up: float  # epochs
    decay: str

    def __str__(self):
        return f"{self.rule}, rate {self.rate:g}, warm-up {self.warm_up:g} epochs, {self.decay}"


BASELINE = Choice("momentum", 0.02, 8.0, "quadratic")  # at the base batch


class Result(NamedTuple):
    """What came of a choice: a number for each seed."""

    accuracy: tuple[float, ...]
    moved: float  # how far the weights went, over their first length; infinite: no numbers any more

    @property
    def mean(self):
        return float(np.mean(self.accuracy))


@dataclass
class Tuning:
    """A learner's attempts. epochs, seeds: fewer make the runs quicker, for tests."""

    name: str
    epochs: int = EPOCHS
    seeds: int = SEEDS

    def __post_init__(self):
        self.tried, self.revealed = {}, None
        self._data = split(load_data(experiment_of(BASELINE, BASE, 0)), seed_of(self.name))
        self.baseline = self._run(BASELINE, BASE)
        self.target = self.baseline.mean - MARGIN

    def attempt(self, rule, rate, warm_up=0.0, decay="constant"):
        """Train with these choices, on three seeds, and show all attempts so far."""
        choice = Choice(rule, rate, warm_up, decay)
        known = "You have made this attempt before; it costs nothing. " * (choice in self.tried)
        try:
            self.add(choice)
        except SpecError as error:
            return self._page(str(error))
        return self._page(known + words_of(choice, self.tried[choice], self.target))

    def add(self, choice):
        """Train with a choice that has not been tried. Raises SpecError for what is not allowed."""
        check_choice(choice, self.epochs)
        if choice in self.tried:
            return
        if self.revealed is not None:
            raise SpecError("The test has been revealed: nothing more can be chosen.")
        if len(self.tried) >= BUDGET:
            raise SpecError(
                f"The budget of {BUDGET} attempts is spent. Choose among what you have."
            )
        self.tried[choice] = self._run(choice, BASE * TIMES)

    @property
    def best(self):
        """The choice with the best mean on the validation samples, or None."""
        return max(self.tried, key=lambda each: self.tried[each].mean, default=None)

    def findings(self):
        """Return what is reached."""
        spent = f"{len(self.tried)} of {BUDGET} attempts"
        if self.best is None:
            return [kept(WITHIN, f"{spent}."), later(REACHED, "Nothing tried yet."), later(ONCE)]
        mean = self.tried[self.best].mean
        sentence = f"{mean:.1%} with {self.best}; the target is {self.target:.1%}."
        why = words_of(self.best, self.tried[self.best], self.target)
        reached = mean >= self.target
        result = [
            kept(WITHIN, f"{spent}."),
            (kept if reached else broken)(REACHED, f"{sentence} {why}"),
        ]
        if self.revealed is None:
            return [*result, later(ONCE, "reveal(sure=True) uses them, and closes the tuning.")]
        return [*result, kept(ONCE, self._test_words())]

    def again(self, experiment):
        """Return what is reached by the choice in a file that `save` wrote. Raises SpecError for other files."""
        training, strategy = experiment.training, experiment.strategy
        choice = Choice(
            strategy.optimizer, float(training.rate), float(training.warm_up), training.decay
        )
        ranks, seed = int(strategy.devices_per_node), experiment.run.seed
        if experiment != experiment_of(choice, BASE * TIMES, seed, self.epochs, ranks):
            raise SpecError(
                "The file differs from the one that tuning.save() writes in more than rule, "
                "rate, warm-up and decay."
            )
        self.add(choice)
        return self.findings()[1]

    def check(self):
        """Return the findings for the page."""
        return show(
            self.findings(), f"Batch {BASE * TIMES}, {TIMES} times the base batch of {BASE}"
        )

    def reveal(self, sure=False):
        """Train the best choice on all training samples and ask the test samples, once."""
        if self.best is None:
            return self._page("Nothing tried yet.")
        if not (sure or self.revealed):
            return self._page(
                "Not revealed yet. Pass sure=True when you have chosen; you can do this only once."
            )
        self.ask_the_test()
        return self._page(self._test_words())

    def ask_the_test(self):
        """Return the accuracy on the test samples; the first time fixes it."""
        if self.revealed is None:
            data = load_data(experiment_of(BASELINE, BASE, 0))
            self.revealed = (
                self._run(self.best, BASE * TIMES, data),
                self._run(BASELINE, BASE, data),
            )
        return self.revealed[0].mean

    def save(self, path=HERE / "choice.toml"):
        """Write the best choice as an experiment of four ranks, the same global batch."""
        if self.best is None:
            return self._page("Nothing tried yet.")
        experiment = experiment_of(
            self.best, BASE * TIMES, seed_of(self.name) % 2**31, self.epochs, 4
        )
        dump(experiment, path)
        return self._page(
            f"Written to {Path(path).name}: mpiexec -n 4 python checks.py choice.toml"
        )

    def _run(self, choice, batch, data=None):
        seeds = [(seed_of(self.name) + k) % 2**31 for k in range(self.seeds)]
        return results(choice, batch, seeds, self.epochs, data or self._data)

    def _test_words(self):
        mine, small = (each.mean for each in self.revealed)
        return (
            f"On the test samples: {mine:.1%}, and {small:.1%} with the small batch; on the validation samples"
            f" it was {self.tried[self.best].mean:.1%}."
        )

    def _page(self, words):
        import ipywidgets

        from lib_dlhpc.explore.blocks.style import PAGE_STYLE

        rows = "".join(
            f"<tr><td>{number}</td><td>{escape(str(each))}</td><td>{result.mean:.1%}</td>"
            f"<td>{min(result.accuracy):.1%} to {max(result.accuracy):.1%}</td></tr>"
            for number, (each, result) in zip(count(1), self.tried.items())
        )
        spare = BUDGET - len(self.tried)
        left = "Closed" if self.revealed else f"{spare} attempt{'s' * (spare != 1)} left"
        page = ipywidgets.HTML(
            f"{PAGE_STYLE}<p>Batch {BASE}: {self.baseline.mean:.1%}. Target at batch {BASE * TIMES}:"
            f" {self.target:.1%}. {left}.</p><table><thead><tr><th></th>"
            f"<th>attempt</th><th>validation, mean of {self.seeds} seeds</th><th>from, to</th></tr></thead>"
            f'<tbody>{rows}</tbody></table><p role="status">{escape(words)}</p>'
        )
        page.add_class("dlhpc-results")
        return page


@cache
def tuning_of(name):
    """Return the learner's attempts: the same ones, as often as the cell is run."""
    return Tuning(name)


def experiment_of(choice, batch, seed, epochs=EPOCHS, ranks=1):
    """Return the experiment that a choice is. batch: of all ranks."""
    return read_experiment(
        {
            "model": {"family": "mlp", "widths": [*[64] * 6, 10]},
            "dataset": {"name": "digits"},
            "machine": {"name": "laptop"},
            "strategy": {
                "nodes": 1,
                "devices_per_node": ranks,
                "batch": batch // ranks,
                "optimizer": choice.rule,
            },
            "run": {"epochs": epochs, "seed": seed},
            "training": {
                "rate": choice.rate,
                "warm_up": choice.warm_up,
                "decay": choice.decay,
                "steps_at": 0.4 * epochs,
                "weight_decay": 5e-4,
            },
        }
    )


def split(data, seed):
    """Return the training samples only: four fifths to train with, the learner's own fifth to judge by."""
    order = np.random.default_rng(seed).permutation(len(data.x))
    train_on, judge_by = np.split(order, [len(order) * 4 // 5])
    x, y = data.x, data.y
    return replace(data, x=x[train_on], y=y[train_on], test_x=x[judge_by], test_y=y[judge_by])


def results(choice, batch, seeds, epochs, data):
    """Train once for each seed; a run that diverges counts as chance."""
    accuracy, moved = [], []
    for seed in seeds:
        experiment = experiment_of(choice, batch, seed, epochs)
        network = fresh(experiment)
        first = network.weights.copy()
        try:
            with one_thread(), np.errstate(all="ignore"):
                for _ in steps(network, experiment, data):
                    pass
            accuracy.append(accuracy_of(network, data))
            moved.append(float(np.linalg.norm(network.weights - first) / np.linalg.norm(first)))
        except Diverged:
            accuracy.append(CHANCE)
            moved.append(np.inf)
    return Result(tuple(accuracy), float(np.median(moved)))


def words_of(choice, result, target):
    """Say what a result looks like, not what to choose."""
    missing = 100 * (target - result.mean)
    if missing <= 0:
        return "Target reached."
    if not np.isfinite(result.moved):
        return f"Diverged: the steps were too long for this loss. {_too_long(choice)}"
    if result.moved < TIMID and result.mean < COLLAPSED:
        return (
            f"The weights moved by {result.moved:.1%} of their length in the whole run. What does the rate of"
            f" {choice.rule} multiply?"
        )
    if result.mean < COLLAPSED:
        return (
            "Collapsed: all numbers are finite, but the network has lost what it learned. "
            f"{_too_long(choice)}"
        )
    if max(result.accuracy) - min(result.accuracy) > 0.1:
        return f"{missing:.1f} points short, and the seeds differ a lot: this is close to collapse."
    return f"{missing:.2g} points short."


def _too_long(choice):
    """Ask for the moment at which steps are too long."""
    if choice.warm_up < 1:
        return "When are long steps the most dangerous?"
    return (
        f"The warm-up protects only the first {choice.warm_up:g} epochs. "
        "How long are the steps at its end?"
    )


def check_choice(choice, epochs=EPOCHS):
    """Raise SpecError for what is not allowed."""
    for name, legal in (("rule", RULES), ("decay", DECAYS)):
        if getattr(choice, name) not in legal:
            raise SpecError(
                f"{name} = {getattr(choice, name)!r}: expected one of {', '.join(legal)}."
            )
    for name, low, high in (("rate", 0, np.inf), ("warm_up", 0, epochs)):
        value = getattr(choice, name)
        if isinstance(value, bool) or not isinstance(value, Real) or not low <= value < high:
            raise SpecError(f"{name} = {value!r}: expected a number from {low} to below {high:g}.")
    if choice.rate == 0:
        raise SpecError("rate = 0: expected a number above 0.")


def main():
    """Judge a choice by its learner's target; or train it on the ranks there are and ask the test samples."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    file, *name = arguments("choice.toml", '"your name"', optional=1)
    try:
        experiment = load(file)
    except SpecError as error:
        raise Unusable(str(error)) from None
    if name:
        try:
            result = [Tuning(*name).again(experiment)]
        except SpecError as error:
            result = [broken(REACHED, str(error))]
        end_with(result)
    batch = int(experiment.global_batch)
    if batch % comm.size:
        raise Unusable(f"{comm.size} ranks: expected a number that divides the batch of {batch}.")
    cut = {"strategy.devices_per_node": comm.size, "strategy.batch": batch // comm.size}
    run = train(experiment.set(cut), comm if comm.size > 1 else SingleRank())
    if comm.rank == 0:
        ranks = f"{comm.size} rank{'s' * (comm.size > 1)}"
        print(
            f"{ranks}, batch {batch}: {run.accuracy:.1%} on the test samples, {run.seconds:.1f} s"
        )


if __name__ == "__main__":
    end_together(main)
