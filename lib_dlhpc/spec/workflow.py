"""Workflow: a simulation that feeds a training run while both go on, in one frozen object and one TOML file.

The simulation is the heat equation on a square, its rows shared out in blocks. A sample is a field and what has
become of it `sampling` steps later; so many samples as the experiment's batch has make a batch, and batches go
to the training ranks in the order in which they are made.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import LARGEST_FILE, Experiment, read_experiment, to_tables
from lib_dlhpc.spec.schema import check_keys, choice, number, read_table, to_table, whole
from lib_dlhpc.spec.units import count

PLACEMENTS = ("shared", "separate")
WHEN_EMPTY = ("wait", "again")
TABLES = ("simulation", "coupling", "costs")
NUMBER = 8  # B of a number of a field on its way


@dataclass(frozen=True)
class Simulation:
    """The heat equation u' = diffusivity (u_xx + u_yy) on the unit square, 0 at its edge, in explicit steps.

    A step is `stability` times the largest stable one, made of `substeps` smaller ones: the same physics at
    more cost. Every `restart` steps it begins again with a new random field.
    """

    grid: int = whole(default=32, least=4, most=4096)  # points in each direction, the edge left out
    steps: int = whole(default=640)
    sampling: int = whole(default=2)  # a sample every so many steps
    restart: int = whole(default=20)  # steps from one first field to the next
    substeps: int = whole(default=1)
    halo: int = whole(default=1)  # rows that neighbours exchange at once; see `width`
    diffusivity: float = number(default=1.0, positive=True)  # of a square of side 1, in 1/s
    stability: float = number(
        default=0.8, positive=True, most=1.0
    )  # share of the largest stable step
    seed: int = whole(default=0, least=0)

    @property
    def spacing(self) -> float:
        """The distance of two points."""
        return 1 / (self.grid + 1)

    @property
    def small_step(self) -> float:
        """The s of a small step: h^2 / (4 diffusivity), the largest stable one, times stability / substeps."""
        return self.stability * self.spacing**2 / (4 * self.diffusivity) / self.substeps

    def width(self, ranks: int) -> int:
        """The rows that a rank takes from each neighbour, 0 where it has none.

        With w rows more than its own a rank can take w small steps before it needs its neighbours again: it
        computes these rows as well, and sends one message in place of w (Demmel et al. 2008, "Avoiding
        communication in sparse matrix computations"). No more than a rank has, or a step has small steps.
        """
        return min(self.halo, self.substeps, self.grid // ranks) if ranks > 1 else 0

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return self.steps // self.sampling

    @property
    def field_bytes(self) -> int:
        """B of a field."""
        return NUMBER * self.grid**2


@dataclass(frozen=True)
class Coupling:
    """Which ranks do what, and what lies between them.

    placement: "shared": all ranks simulate until `depth` batches are there, then all train on them, in turn;
    "separate": the first `ranks` simulate, the others train, at the same time. depth: batches that may lie
    between the two. Where the buffer is full, the simulation waits. Where it is empty, the training waits, or,
    with empty = "again", trains once more on the batch it had last, so that how often depends on the clock.
    """

    placement: str = choice(PLACEMENTS, default="separate")
    ranks: int = whole(default=1)
    depth: int = whole(default=2)
    empty: str = choice(WHEN_EMPTY, default="wait")


@dataclass(frozen=True)
class Costs:
    """What things take on a machine, so that a workflow can be predicted for it; s.

    jitter: standard deviation over mean of the compute time of a batch, on one rank.
    """

    point: float = number("s", positive=True)  # of a point and a small step
    sample: float = number("s", positive=True)  # to train on a sample
    small_step: float = number("s", default=0.0)  # of a small step, however few its points
    update: float = number("s", default=0.0)  # of a training step, however few its samples
    latency: float = number("s", default=0.0)  # of a message
    byte: float = number("s", default=0.0)  # of a byte of a message
    jitter: float = number(default=0.0)


@dataclass(frozen=True)
class Workflow:
    """A simulation, a training run and how they are coupled: the input of all three engines."""

    experiment: Experiment
    simulation: Simulation = field(default_factory=Simulation)
    coupling: Coupling = field(default_factory=Coupling)
    costs: Costs | None = None  # None: measured where it runs

    @property
    def batch(self) -> int:
        """Samples of a batch, over all training ranks."""
        return int(self.experiment.global_batch)

    @property
    def batches(self) -> int:
        """How many batches there are."""
        return self.simulation.samples // self.batch

    def placed(self, placement: str, ranks: int = 1) -> "Workflow":
        """Return the same workflow with another placement; what is trained stays the same."""
        return replace(self, coupling=replace(self.coupling, placement=placement, ranks=ranks))

    def sides(self, ranks: int) -> tuple[range, range]:
        """Return which of all ranks simulate and which train. Raises SpecError where too few are left."""
        coupling, grid = self.coupling, self.simulation.grid
        if coupling.placement == "shared":
            simulating, training = range(ranks), range(ranks)
        else:
            simulating, training = range(coupling.ranks), range(coupling.ranks, ranks)
            if not training:
                fewer = f"coupling.ranks of at most {ranks - 1}, " if ranks > 1 else ""
                raise SpecError(
                    f"coupling.ranks = {coupling.ranks}: these leave none to train of {count(ranks, 'rank')};"
                    f' legal: {fewer}{coupling.ranks + 1} ranks or more, or placement = "shared".'
                )
        if len(simulating) > grid:
            raise SpecError(
                f"{len(simulating)} ranks simulate: simulation.grid = {grid} has a row for {grid} at most."
            )
        return simulating, training


def share(many: int, rank: int, ranks: int) -> slice:
    """Return which of `many` neighbours are a rank's, as even as whole numbers allow."""
    return slice(rank * many // ranks, (rank + 1) * many // ranks)


def most(many: int, ranks: int) -> int:
    """Return the largest share of a rank."""
    return -(-many // ranks)


def read_workflow(tables: Mapping[str, Any]) -> Workflow:
    """Build a Workflow from nested tables as TOML gives them; raises SpecError."""
    check_keys(tables, _LEGAL, "workflow")
    tables = dict(tables)
    simulation = read_table(Simulation, tables.pop("simulation", {}), "simulation")
    coupling = read_table(Coupling, tables.pop("coupling", {}), "coupling")
    costs = tables.pop("costs", None)
    if simulation.sampling > simulation.steps:
        raise SpecError(
            f"simulation.sampling = {simulation.sampling}: no sample in simulation.steps = {simulation.steps};"
            f" legal: a whole number from 1 to {simulation.steps}."
        )
    size = 2 * simulation.field_bytes
    shape = [1, simulation.grid, simulation.grid]
    tables["dataset"] = {"samples": simulation.samples, "sample_shape": shape}
    tables["dataset"]["bytes"] = float(size * simulation.samples)
    tables.setdefault("machine", {"name": "laptop"})
    workflow = Workflow(
        read_experiment(tables), simulation, coupling,
        None if costs is None else read_table(Costs, costs, "costs"),
    )  # fmt: skip
    _check(workflow)
    return workflow


# No [dataset]: the simulation makes the samples.
_LEGAL = (*TABLES, "model", "machine", "strategy", "run", "training")


def _check(workflow: Workflow) -> None:
    """Raise SpecError where two fields contradict each other."""
    simulation, model = workflow.simulation, workflow.experiment.model
    unit = simulation.sampling * workflow.batch
    if simulation.steps % unit:
        legal = max(round(simulation.steps / unit), 1) * unit
        raise SpecError(
            f"simulation.steps = {simulation.steps}: a batch is simulation.sampling * strategy.batch = {unit}"
            f" steps; legal: a multiple, such as {legal}."
        )
    if simulation.restart % simulation.sampling:
        raise SpecError(
            f"simulation.restart = {simulation.restart}: legal: a multiple of simulation.sampling ="
            f" {simulation.sampling}."
        )
    shape = (1, simulation.grid, simulation.grid)
    if model.input_shape != shape or model.output_shape != shape:
        raise SpecError(
            f"model: reads {model.input_shape} and gives {model.output_shape}; with simulation.grid ="
            f" {simulation.grid} it must read and give fields of {shape}."
        )


def loads(source: str) -> Workflow:
    """Return the workflow that a TOML text describes; raises SpecError, also on broken TOML."""
    if len(source) > LARGEST_FILE:
        raise SpecError(f"The workflow is {len(source):,} characters long; most: {LARGEST_FILE:,}.")
    try:
        return read_workflow(tomllib.loads(source))
    except SpecError:
        raise
    except (ValueError, RecursionError) as error:
        raise SpecError(f"Not valid TOML: {error}.") from None


def load(path: str | Path) -> Workflow:
    """Return the workflow in a TOML file; raises SpecError, also when the file cannot be read."""
    try:
        return loads(Path(path).read_text(encoding="utf-8"))
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: cannot be read: {error}.") from None


def dumps(workflow: Workflow) -> str:
    """Return the workflow as TOML text that reads back to an equal workflow."""
    tables = to_tables(workflow.experiment)
    del tables["dataset"]
    for name in TABLES:
        noun = getattr(workflow, name)
        if noun is not None:
            tables[name] = to_table(noun)
    return tomli_w.dumps(tables)
