"""compare(experiment): the same steps predicted, simulated at both fidelities and run, term by term."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.calibration.step_fit import slowdown_factors
from lib_dlhpc.comparison.energy import mean_power, of_causes, of_run
from lib_dlhpc.comparison.load import Load, load_of, slowdown_of, spread_of, too_busy
from lib_dlhpc.comparison.placed import Placed, check_here, placed
from lib_dlhpc.comparison.short import FEWEST, shortened, steps_in, steps_of_an_epoch
from lib_dlhpc.comparison.steady import Slowdown, Steps, steady, steps_of
from lib_dlhpc.comparison.timelines import typical_step
from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.energy import Power, counters, run_power
from lib_dlhpc.launch.local import Job, start
from lib_dlhpc.lifetime import owned
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.measured.bands import ALL, Band, bands, carried, seconds_of, widened
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.energy import energy_of
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.measured_machine import slowed
from lib_dlhpc.spec.units import count
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.store import load

if TYPE_CHECKING:
    import altair as alt

SIMULATIONS = ("rounds", "events")
WAYS = ("predicted", *SIMULATIONS, "measured")
SIMULATED_STEPS = 100  # simulated steps on a few ranks, to average the jitter; fewer on many ranks
SECONDS = 5.0  # of real steps, about
PAUSE = 0.05  # s between two polls of a run
BESIDE = 0.3  # s of probe runs before and after a run; each probe runs at least once
GOING_ON = ("queued", "running")  # states of a run that has not ended

Begin = Callable[..., Job]
# Called while a run is in progress; an exception from it ends the run.
Look = Callable[[Job], None]


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """One step, up to four ways: s by cause and way, with the uncertainty of each way."""

    placed: Placed
    terms: Mapping[str, Mapping[str, float]]  # name -> way -> s
    step: Mapping[str, float]  # way -> s
    spread: Band  # of measured steps, from p10 to p90
    bands: Mapping[str, Mapping[str, Band]]  # way -> name or ALL -> 90% band
    steps: int  # measured steps that count
    notes: tuple[str, ...] = ()
    folder: Path | None = None
    slowdown: Slowdown | None = None  # slowdown factors during the run; None: unknown
    load: Load = field(default_factory=Load)
    timeline: Timeline | None = None  # of a typical measured step
    joules: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # way -> name -> J
    power: Power | None = None  # of the run; None: unknown
    verdict: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def oversubscribed(self) -> bool:
        """Whether ranks shared cores."""
        return self.placed.oversubscribed

    @property
    def no_verdict(self) -> str:
        """Why the run gets no verdict, in a sentence; "" if it gets one."""
        if self.oversubscribed:
            ranks, cores = count(self.placed.ranks, "rank"), count(self.placed.cores, "core")
            fewer = count(self.placed.cores, "rank")
            return f"{ranks} share {cores}; compare on {fewer} or fewer."
        alike = self.placed.experiment.strategy.update != "asynchronous"
        return too_busy(self.load, *self.spread, self.steps, alike)

    def error(self, way: str, name: str = ALL) -> float | None:
        """Return (way - measured) / measured of a step or a term; None without a measurement."""
        of = self.step if name == ALL else self.terms[name]
        measured = of.get("measured", 0.0)
        return of[way] / measured - 1 if measured and way in of else None

    def inside(self, way: str = "predicted") -> bool | None:
        """Return whether the measured step lies within the band of a way; None without a band or a verdict."""
        if self.no_verdict:
            return None
        band = self.bands.get(way, {}).get(ALL)
        return band and band[0] <= self.step["measured"] <= band[1]

    def as_text(self) -> str:
        """Return the table and the verdict, for a terminal."""
        from lib_dlhpc.comparison.text import as_text

        return as_text(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the same as plain values in SI units, ready for JSON."""
        from lib_dlhpc.comparison.text import as_dict

        return as_dict(self)

    def summary(self) -> Summary:
        """Return a step and its terms each way, in words."""
        from lib_dlhpc.comparison.summary import summary

        return summary(self)

    def to_columns(self) -> Columns:
        """Return a row for each term of each way: model, ranks, way, term, seconds, low, high."""
        from lib_dlhpc.comparison.summary import columns

        return columns(self)

    def plot(self) -> "alt.Chart":
        """Return a stacked bar of the terms for each way."""
        from lib_dlhpc.results.charts import stacked_bars

        return stacked_bars(self.to_columns(), "way", self.summary().title)

    def timelines(self) -> dict[str, Timeline]:
        """Return a step as it is predicted, simulated and measured, with the same rows."""
        from lib_dlhpc.comparison.timelines import expected_steps

        measured = {} if self.timeline is None else {"measured": self.timeline}
        return {**expected_steps(self.placed.experiment), **measured}

    def gantt(self) -> "alt.Chart":
        """Return a Gantt chart of the step for each way, one below the other, on one time axis."""
        from lib_dlhpc.results.charts import gantt
        from lib_dlhpc.timeline.summary import drawn

        each = {way: drawn(timeline).to_columns() for way, timeline in self.timelines().items()}
        ways = [way for way, table in each.items() for _ in table["rank"]]
        names = next(iter(each.values()))
        rows = {name: [value for table in each.values() for value in table[name]] for name in names}
        return gantt({"way": ways, **rows}, self.summary().title)


def start_beside(experiment: Experiment, ranks: int, folder: Path | None = None) -> Job:
    """Start a run here; on a calibrated machine its ranks also run probes, which measure the current slowdown."""
    calibrated = experiment.machine.measured is not None and ranks <= cores()
    return start(experiment, ranks, folder, beside=BESIDE if calibrated else 0.0)


def compare(
    experiment: Experiment,
    ranks: int | None = None,
    machine: Machine | None = None,
    steps: int | None = None,
    folder: Path | None = None,
    seconds: float = SECONDS,
    look: Look = lambda job: None,
    begin: Begin = start_beside,
) -> Comparison:
    """Predict, simulate and run some steps of an experiment on this machine.

    ranks, machine: see `placed`. steps: to run; None: as many as take about `seconds`. folder: the run folder; None: a
    temporary one. Raises SpecError for an experiment that cannot run, JobError if the run fails.
    """
    here = placed(experiment, ranks, machine)
    check_here(here)
    expected = estimated(here)
    wanted = expected.steps_in(seconds) if steps is None else steps
    return beside(expected, [measured(here, wanted, folder, look, begin)], folder)


@dataclass(frozen=True)
class Expected:
    """The predictions and simulations of a step."""

    placed: Placed
    terms: Mapping[str, Mapping[str, float]]  # way -> name -> s
    bands: Mapping[str, Mapping[str, Band]]
    notes: tuple[str, ...]
    joules: Mapping[str, Mapping[str, float]]  # way -> name -> J

    @property
    def step(self) -> dict[str, float]:
        """Seconds of a step by way."""
        return {way: sum(terms.values()) for way, terms in self.terms.items()}

    def at_slowdown(self, slowdown: Slowdown, spread: Slowdown = (1.0, 1.0)) -> "Expected":
        """Return the same for a machine slower than its calibration by these factors.

        spread: uncertainty of these factors, up and down; bands widen accordingly.
        """
        return estimated(_slower(self.placed, slowdown), spread)

    def steps_in(self, seconds: float) -> int:
        """Return how many steps take about `seconds`; FEWEST where ranks share cores."""
        if self.placed.oversubscribed:
            return FEWEST  # their time is unpredictable
        return steps_in(seconds, self.step["predicted"])


def _slower(here: Placed, slowdown: Slowdown) -> Placed:
    experiment = here.experiment
    slower = replace(experiment, machine=slowed(experiment.machine, *slowdown))
    return replace(here, experiment=slower.set({}))


def estimated(here: Placed, spread: Slowdown = (1.0, 1.0)) -> Expected:
    """Predict a step and simulate it at both fidelities. A fidelity that cannot be simulated is left out, with a note.

    spread: see `Expected.at_slowdown`.
    """
    experiment, notes = here.experiment, list(here.notes)
    p = predict(experiment)
    predicted = {name: float(seconds) for name, seconds in p.terms.items()}
    ways: dict[str, Mapping[str, float]] = {"predicted": predicted}
    joules = {"predicted": of_causes(p.energy)}
    steps = min(SIMULATED_STEPS, max(4 * SIMULATED_STEPS // here.ranks, 5))
    for fidelity in SIMULATIONS:
        try:
            found = measure(experiment, simulate(experiment, fidelity, steps=steps))
            ways[fidelity] = found.terms
            joules[fidelity] = of_causes(energy_of(experiment, found))
        except SpecError as error:
            notes.append(f"fidelity {fidelity} is left out: {error}")
    known = bands(experiment)
    if known and max(spread) > 1:
        known = widened(known, seconds_of(p), _edges(here, spread))
    if experiment.strategy.offload == "all":
        ways = {way: _within_backward(terms, 0.0) for way, terms in ways.items()}
        joules = {way: _within_backward(each, 0.0) for way, each in joules.items()}
        known = known and _within_backward(known, (0.0, 0.0))
    whole = {way: {**terms, ALL: sum(terms.values())} for way, terms in ways.items()}
    held = {way: carried(known, whole["predicted"], terms) for way, terms in whole.items()}
    return Expected(here, ways, held if known else {}, tuple(notes), joules)


def _edges(here: Placed, spread: Slowdown) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return s of a step and its terms on a machine faster by these factors, and on a slower one."""
    work, calls = spread
    quick, slow = (
        seconds_of(predict(_slower(here, factors).experiment))
        for factors in ((1 / work, 1 / calls), (work, calls))
    )
    return quick, slow


def _within_backward(of: Mapping[str, Any], nothing: Any) -> dict[str, Any]:
    """Return terms, or their bands, as an offloaded run reports them: weights are updated within the backward pass."""
    both = np.add(of["backward"], of["update"])
    joined = tuple(both.tolist()) if both.ndim else float(both)
    return {**of, "backward": joined, "update": nothing}


def measured(
    here: Placed,
    steps: int,
    folder: Path | None = None,
    look: Look = lambda job: None,
    begin: Begin = start_beside,
) -> Steps:
    """Run `steps` steps and return them. Without `folder` the run folder is temporary.

    Raises JobError if the run fails.
    """
    short = shortened(here.experiment, steps)
    temporary = owned.temporary_folder("dlhpc-run-")
    with temporary if folder is None else nullcontext(folder) as place:
        before, began = counters(), time.perf_counter()
        job = begin(short, here.ranks, place)
        try:
            while job.state in GOING_ON:
                look(job)
                time.sleep(PAUSE)
            result = job.wait()
            took, after = time.perf_counter() - began, counters()
            timeline = load(job.folder / "timeline.npz")
        finally:
            job.cancel()
    core_wait, beside = result.get("core_wait", ()), result.get("beside", ())
    together = int(short.strategy.local_steps)
    found = steps_of(timeline, together, steps_of_an_epoch(short), core_wait)
    slowdowns = [slowdown_factors(moment, short.machine, here.ranks) for moment in beside]
    known = tuple(slowdown for slowdown in slowdowns if slowdown is not None)
    step = typical_step(timeline)
    power = run_power(short, here.ranks, took, before, after)
    return replace(found, slowdowns=known, asked=bool(beside), timeline=step, power=power)


def beside(expected: Expected, runs: Sequence[Steps], folder: Path | None = None) -> Comparison:
    """Compare measured runs with the expected step at the slowdown that the probes beside the runs measured."""
    from lib_dlhpc.comparison.verdict import verdict

    found, now, apart = steady(runs), slowdown_of(runs), 1.0
    if now is not None:
        spread = spread_of(runs)
        expected = expected.at_slowdown(now, spread)
        quick, slow = (edge[ALL] for edge in _edges(expected.placed, spread))
        apart = float(slow / quick)
    ways = {**expected.terms, "measured": found.terms}
    names = dict.fromkeys(name for terms in ways.values() for name in terms)
    terms = {
        name: {way: of[name] for way, of in ways.items() if name in of}
        for name in names
        if any(way.get(name) for way in ways.values())
    }
    step = {**expected.step, "measured": found.step}
    parts = (expected.placed, terms, step, (found.low, found.high), expected.bands, found.steps)
    load = load_of(runs, found, apart)
    power = mean_power([run.power for run in runs])
    joules = {**expected.joules, "measured": of_run(found.terms, power)}
    bare = Comparison(*parts, expected.notes, folder, now, load, runs[0].timeline, joules, power)
    return replace(bare, verdict=tuple(verdict(bare)))
