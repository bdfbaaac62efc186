"""simulate_seeds: steps of a run simulated with many seeds of the jitter; how far their times spread."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.scale_out.engines import results
from lib_dlhpc.scale_out.places import HERE, Place
from lib_dlhpc.scale_out.work import Arrays, Work, experiment_of, part
from lib_dlhpc.simulation import measure, simulate, simulate_terms
from lib_dlhpc.simulation.step import check
from lib_dlhpc.spec.experiment import Experiment, dumps
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    import altair as alt

SIZE = 16  # seeds of a chunk
CHUNKS = 4096  # of more seeds, chunks are larger
STEP = "step_time"
PERCENTILES = (5, 50, 95)


@dataclass(frozen=True, repr=False)
class Seeds(Result):
    """Steps simulated with many seeds, a row for each: s of a mean step and of each term, the mean of the ranks.

    rows: "seed", "step_time" and terms, (seeds,) each: 8 B for each number.
    """

    experiment: Experiment
    fidelity: str
    steps: int
    rows: Arrays

    @property
    def columns(self) -> Columns:
        """The same as lists."""
        return {name: each.tolist() for name, each in self.rows.items()}

    def summary(self) -> Summary:
        """Return mean, standard deviation and percentiles of the terms, beside the prediction, in words."""
        known = predict(self.experiment)
        predicted = {STEP: known.step_time, **known.terms}
        rows = []
        for name, seconds in self.rows.items():
            if name != "seed" and (np.any(seconds) or predicted.get(name)):
                middle = [np.percentile(seconds, each) for each in PERCENTILES]
                found = (predicted.get(name, 0.0), np.mean(seconds), np.std(seconds), *middle)
                rows.append([name.replace("_", " "), *(show(float(each), "s") for each in found)])
        seeds = self.rows["seed"]
        facts = {"seeds": f"{len(seeds):,}, from {seeds[0]} on", "fidelity": self.fidelity}
        e = self.experiment
        title = (
            f"{e.model.name or 'a model'} on {e.machine.name or 'a machine'}, steps {self.steps}"
        )
        header = ("", "predicted", "mean", "deviation", *(f"{each}%" for each in PERCENTILES))
        return Summary(title, facts, header, rows)

    def to_columns(self) -> Columns:
        """Return a row for each seed."""
        return self.columns

    def plot(self) -> "alt.Chart":
        """Return the step time of each seed."""
        from lib_dlhpc.results.charts import points

        columns = self.columns | {"fidelity": [self.fidelity] * len(self.rows["seed"])}
        return points(columns, "seed", STEP, "fidelity", self.summary().title)


def simulate_seeds(
    experiment: Experiment,
    seeds: int,
    fidelity: str = "rounds",
    steps: int = 1,
    first: int | None = None,
    where: Place = HERE,
) -> Seeds:
    """Simulate `steps` steps with each of `seeds` seeds, from `first` (None: run.seed) on; where: see `place`.

    Raises SpecError as `simulate` does, LostError where workers are lost.
    """
    if seeds < 1:
        raise SpecError(f"seeds = {seeds}: legal: 1 and more.")
    first = int(experiment.run.seed if first is None else first)
    check(experiment, fidelity, first, steps, rows=not _in_rounds(experiment, fidelity))
    size = max(SIZE, -(-seeds // CHUNKS))
    arguments = {
        "experiment": dumps(experiment),
        "first": first,
        "seeds": seeds,
        "fidelity": fidelity,
        "steps": steps,
        "size": size,
    }
    work = Work("lib_dlhpc.scale_out.seeds:chunk", arguments, -(-seeds // size))
    found = list(results(work, where))
    rows = {name: np.concatenate([each[name] for each in found]) for name in found[0]}
    return Seeds(experiment, fidelity, steps, rows)


def _in_rounds(experiment: Experiment, fidelity: str) -> bool:
    """Return whether terms are found without a row for each interval."""
    return fidelity == "rounds" and experiment.strategy.update != "asynchronous"


def chunk(arguments: Mapping[str, Any], number: int) -> Arrays:
    """Simulate the seeds of a chunk."""
    experiment = experiment_of(arguments["experiment"])
    fidelity, steps = arguments["fidelity"], arguments["steps"]
    rows: dict[str, list[float]] = {}
    for seed in range(*part(arguments["size"], number, arguments["seeds"])):
        seed += arguments["first"]
        if _in_rounds(experiment, fidelity):
            found = simulate_terms(experiment, seed, steps)
        else:
            found = measure(experiment, simulate(experiment, fidelity, seed, steps))
        for name, value in {"seed": seed, STEP: found.step_time, **found.terms}.items():
            rows.setdefault(name, []).append(value)
    return {name: np.array(values) for name, values in rows.items()}
